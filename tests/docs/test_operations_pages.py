"""The pages for operators: commands that exist, units that a stop respects, settings that are valid, lines that run."""

from __future__ import annotations

import configparser
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import BaseCommand, CommandError, load_command_class

from django_jobs.conf import KEYS, get_settings, problems
from tests.databases import Server
from tests.docs.blocks import FENCE, OPTION

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
OURS = {"jobs", "runworker"}
DJANGOS = {"check", "migrate"}


def blocks(language: str) -> list[tuple[str, str]]:
    """Return page and text of every block in this language."""
    found = []
    for page in PAGES:
        for block in re.finditer(FENCE.pattern.replace("^```", r"^ *```"), page.read_text(), FENCE.flags):
            info = block["info"].removeprefix("{code-block}").strip()
            lines = [line for line in block["body"].splitlines() if not OPTION.fullmatch(line)]
            if info == language:
                found.append((page.name, "\n".join(lines).strip() + "\n"))
    return found


def commands() -> list[tuple[str, list[str]]]:
    """Return page and words of every command of manage.py, in console blocks and in units."""
    text = "\n".join(f"{page}\t{line}" for page, body in blocks("console") for line in body.splitlines())
    text += "\n" + "\n".join(f"{page}\t{line}" for page, body in blocks("ini") for line in body.splitlines())
    found = []
    for page, words in re.findall(r"^(\S+)\t.*manage\.py (.+)$", text, re.MULTILINE):
        found.append((page, shlex.split(words)))
    return found


def parsed(words: list[str]) -> Any:
    """Parse a command line as manage.py would."""
    app = "django_jobs" if words[0] in OURS else "django.core"
    command: BaseCommand = load_command_class(app, words[0])
    return command.create_parser("manage.py", words[0]).parse_args(words[1:])


@pytest.mark.parametrize(("page", "words"), commands(), ids=[f"{page}-{' '.join(words)}" for page, words in commands()])
def test_command_on_a_page_exists(page: str, words: list[str]) -> None:
    """Verb and options of every shown command are known; nothing is shown that cannot be run."""
    assert words[0] in OURS | DJANGOS, page
    assert parsed(words)


def test_commands_are_found_and_a_wrong_one_is_noticed() -> None:
    """The look above sees the prune of the nightly unit, and an option that does not exist fails it."""
    assert ["jobs", "prune", "--max-seconds", "3600"] in [words for page, words in commands() if page == "deploy.md"]
    with pytest.raises(CommandError):
        parsed(["jobs", "prune", "--never"])


def test_units_are_well_formed_and_let_a_worker_end() -> None:
    """A stop waits for the grace and for the longest call; only the supervisor gets the signal."""
    units = [body for page, body in blocks("ini") if page == "deploy.md"]
    read = []
    for body in units:
        unit = configparser.ConfigParser(strict=True, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(body)
        read.append(unit)
    worker = next(
        unit["Service"] for unit in read if unit.has_section("Service") and "runworker" in unit["Service"]["ExecStart"]
    )
    options = parsed(shlex.split(worker["ExecStart"].split("manage.py ")[1]))

    assert len(read) == 3
    assert int(worker["TimeoutStopSec"]) >= options.grace + get_settings().max_call.total_seconds()
    assert worker["KillMode"] == "mixed"
    (compose,) = [body for page, body in blocks("yaml") if page == "deploy.md"]
    assert int(re.findall(r"stop_grace_period: (\d+)s", compose)[0]) >= int(worker["TimeoutStopSec"])


def test_settings_on_the_pages_are_valid() -> None:
    """Every shown DJANGO_JOBS has known keys with values that can be, and says what the text says."""
    seen = {}
    for page, body in blocks("python"):
        if "DJANGO_JOBS = {" in body:
            names: dict[str, Any] = {"timedelta": timedelta, "DATABASES": {"default": {}}}
            exec(compile(body, page, "exec"), names)
            assert problems(names["DJANGO_JOBS"]) == []
            seen[page] = set(names["DJANGO_JOBS"])

    assert seen["prune.md"] == {"KEEP_CONTENT", "KEEP_DEAD_CONTENT", "KEEP_ROWS", "KEEP_EVENTS"}
    assert seen["deploy.md"] == {"TRANSACTION_POOLER"}


@pytest.mark.django_db
def test_lines_for_the_shell_run() -> None:
    """What the restore page types into the shell prints on an empty database what it shows."""
    (body,) = [text for page, text in blocks("pycon") if page == "restore-from-backup.md"]
    example = doctest.DocTestParser().get_doctest(body, {}, "restore", None, 0)
    said = io.StringIO()

    with contextlib.redirect_stdout(said):
        found = doctest.DocTestRunner(verbose=False).run(example)

    assert found.attempted == len(example.examples) > 5
    assert found.failed == 0, said.getvalue()


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_limit_on_waiting_reaches_the_session(server: Server, database_url: str) -> None:
    """PGOPTIONS, as the upgrade page sets it, is in force in the session of a management command."""
    (line,) = [line for _, body in blocks("console") for line in body.splitlines() if "PGOPTIONS" in line]
    options = re.findall(r"PGOPTIONS='([^']+)'", line)[0]
    ask = (
        "from django.db import connection as c; u = c.cursor(); u.execute('SHOW lock_timeout'); print(u.fetchone()[0])"
    )

    answer = subprocess.run(
        [sys.executable, "manage.py", "shell", "-v", "0", "-c", ask],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url, "PGOPTIONS": options, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert answer.stdout.split()[-1] == "2s"


def test_defaults_on_the_prune_page_are_the_code_s() -> None:
    """The days in the table are those of the settings."""
    text = (ROOT / "docs" / "how-to" / "prune.md").read_text()
    told = {name: int(days) for days, name in re.findall(r"^\| (\d+) days \|.*`(KEEP_\w+)` \|$", text, re.MULTILINE)}
    rules = get_settings()

    assert told == {name: getattr(rules, name.lower()).days for name in told}
    assert set(told) == {name for name in KEYS if name.startswith("KEEP_")}
