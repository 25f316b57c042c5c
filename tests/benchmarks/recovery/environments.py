"""A virtual environment for each peer, below ``.venv-recovery/``, made once per requirements file with exact versions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.recovery.systems import System

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".venv-recovery"
REQUIREMENTS = Path(__file__).parent / "requirements"
SITE = Path(__file__).parent / "site"
INSTALL_TIMEOUT = 900  # seconds


def programs(system: System) -> Path:
    """Return the folder with ``python`` and the system's own commands; installs the system when that was not done yet."""
    if not system.requirements:
        return Path(sys.executable).parent
    wanted = (REQUIREMENTS / system.requirements).read_bytes()
    folder = CACHE / f"{system.name}-{hashlib.sha256(wanted).hexdigest()[:12]}"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _make(folder, REQUIREMENTS / system.requirements)
        (folder / "done").touch()
    return folder / "bin"


def versions(system: System) -> str:
    """Return what is installed, as ``name version`` of the system, its Django and its Python."""
    code = (
        "import importlib.metadata as m, platform, sys\n"
        "def told(n):\n"
        "    try: return f'{n} {m.version(n)}, '\n"
        "    except m.PackageNotFoundError: return ''\n"
        "print(told(sys.argv[1]) + told('Django') + f'Python {platform.python_version()}')"
    )
    command = [programs(system) / "python", "-c", code, system.package]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def _make(folder: Path, requirements: Path) -> None:
    subprocess.run([_python(), "-m", "venv", folder], check=True, timeout=INSTALL_TIMEOUT)
    install = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "-r", requirements]
    done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{requirements.name} could not be installed: {done.stderr.strip()[-2000:]}")


def _python() -> str:
    """Peers need Python 3.12; the newest that is here is taken."""
    if "RECOVERY_PYTHON" in os.environ:
        return os.environ["RECOVERY_PYTHON"]
    own = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in ("3.13", "3.12"):
        kept = sorted(own.glob(f"{version}.*/bin/python{version}"))
        if kept:
            return str(kept[-1])
        if found := shutil.which(f"python{version}"):
            return found
    if sys.version_info >= (3, 12):
        return sys.executable
    raise RuntimeError("The peers need Python 3.12 or later: name one in RECOVERY_PYTHON.")
