"""Django's own tests of its tasks, run against the package's backend."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import pytest

from tests.variants.djangos_own import SKIPPED

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.long
@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django has tasks from 6.0 on")
def test_djangos_own_tests_hold(tmp_path: Path) -> None:
    """Its tests of the dummy and the immediate backend pass here, but for those that are skipped with a reason."""
    command = [sys.executable, "-m", "tests.variants.djangos_own", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-4000:]
    ran = re.search(r"Ran (\d+) tests", told)
    assert ran, told[-4000:]
    assert int(ran[1]) >= 60
    assert f"OK (skipped={len(SKIPPED)})" in told
