"""The tutorial, followed to the letter: every file is written, every command runs and prints what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import django
import pytest

from tests.docs.blocks import Block, Task, blocks_of
from tests.docs.reader import Reader

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
PAGES = ("a-mail-in-five-lines.md", "charge-an-order.md", "test-a-job.md")
# Shown, but not run, each with the reason.
NOT_RUN = {
    "$ .venv/bin/pip install ../django_jobs\n": (
        "needs the network; instead the new environment is lent the packages of the one that runs the tests"
    ),
}


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader in an empty folder, with this Python as ``python3`` and nothing of the test run's own settings."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(getattr(sys, "_base_executable", sys.executable))
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    return Reader(folder=tmp_path, environment=environment)


def lend_packages(folder: Path) -> None:
    """Stand in for the installation: make the packages of this environment and this checkout importable there."""
    packages = sysconfig.get_path("purelib")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([folder / ".venv/bin/python", "-c", where], capture_output=True, text=True, check=True)
    lines = [str(ROOT), f"import site; site.addsitedir({packages!r})"]
    Path(found.stdout.strip(), "lent.pth").write_text("\n".join(lines) + "\n")


def follow(reader: Reader, blocks: list[Block]) -> None:
    """Follow the blocks in order, with the packages lent where the page installs them."""
    for block in blocks:
        if block.task is Task.SKIP:
            lend_packages(reader.folder)
        elif block.is_for(django.VERSION[:2]):  # the others are followed by the runs on the other versions
            reader.follow(block)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_tutorial_does_what_it_shows(reader: Reader) -> None:
    """A newcomer who follows the pages in order sees exactly what they show, up to ids, times and widths."""
    for page in PAGES:
        follow(reader, blocks_of(TUTORIAL / page))


def test_every_page_of_the_tutorial_is_followed() -> None:
    """No page of the tutorial is left out of the test."""
    pages = {page.name for page in TUTORIAL.glob("*.md")} - {"index.md"}

    assert pages == set(PAGES)


def test_only_the_installation_is_not_run() -> None:
    """The blocks that a reader sees but the test does not run are exactly those with a stated reason."""
    skipped = [block.body for page in PAGES for block in blocks_of(TUTORIAL / page) if block.task is Task.SKIP]

    assert sorted(skipped) == sorted(NOT_RUN)
