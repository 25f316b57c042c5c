"""``manage.py jobs alive`` and the doctor beside a heartbeat file: what they print, and that no database is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import OperationalError
from django.test import override_settings

from django_jobs.models import Job
from django_jobs.worker.heartbeat_file import write
from tests.integration.commands.test_jobs_command import jobs
from tests.unit.worker.test_heartbeat_file import BLIND, WELL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "worker.json"


def test_alive_asks_no_database(path: Path) -> None:
    """Outside of any test database: the verb answers from the file alone, with the exit codes of a probe."""
    write(path, WELL)
    well = jobs("alive", "--heartbeat-file", path)
    write(path, BLIND)
    blind, ready = jobs("alive", "--heartbeat-file", path), jobs("alive", "--ready", "--heartbeat-file", path)
    write(path, replace(WELL, heart_turned_ago=99.0))
    stuck = jobs("alive", "--heartbeat-file", path)

    assert [code for _, code in (well, blind, ready, stuck)] == [0, 0, 1, 1]
    assert well[0].startswith("Alive: worker mill (pid ")
    assert blind[0] == ready[0]
    assert "is blind, because no heartbeat was written for 40 s" in blind[0]
    assert stuck[0].startswith("Not alive: worker mill")


def test_alive_needs_to_know_the_file(path: Path) -> None:
    """Without a path and without the setting it is a usage error; the setting is enough."""
    with pytest.raises(CommandError, match="Give --heartbeat-file") as refused:
        jobs("alive")
    assert refused.value.returncode == 2

    write(path, WELL)
    with override_settings(DJANGO_JOBS={"HEARTBEAT_FILE": str(path)}):
        assert jobs("alive")[1] == 0
    with pytest.raises(CommandError, match="is not a number of seconds"):
        jobs("alive", "--heartbeat-file", path, "--max-age", "0")


@pytest.mark.django_db
def test_doctor_adds_what_the_file_says(path: Path) -> None:
    """A worker that works is information, a missing file a thing to mend."""
    write(path, WELL)
    well = jobs("doctor", "--heartbeat-file", path)
    path.unlink()
    gone = jobs("doctor", "--heartbeat-file", path)

    assert "INFO heartbeat-file: Alive: worker mill" in well[0]
    assert "WARNING heartbeat-file: Not alive:" in gone[0]
    assert (well[1], gone[1]) == (0, 1)


@pytest.mark.django_db
def test_doctor_tells_the_file_although_the_database_is_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just then the file is what helps; without one the database's error is all there is to say."""

    def away(*_: object, **__: object) -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr("django_jobs.operate.doctor._unapplied", away)
    write(path, BLIND)

    text, code = jobs("doctor", "--heartbeat-file", path)

    assert code == 1
    assert "is blind, because" in text
    assert "WARNING database-away: Database 'default' cannot be read: connection refused." in text
    with pytest.raises(CommandError, match="cannot be read"):
        jobs("doctor")
    assert not Job.objects.exists()
