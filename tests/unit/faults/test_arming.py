"""A fault is armed by a test or by the environment, fires once, and is refused on a real site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_jobs import checks, faults
from django_jobs.faults import arming, kinds
from django_jobs.faults.arming import VARIABLE, Fault

REAL = {VARIABLE: "{}"}


def come_to(point: str, times: int = 1) -> None:
    """Reach a point as the code does."""
    for _ in range(times):
        faults.reached(point, using="default")


def test_nothing_is_armed_by_importing() -> None:
    """A process that arms nothing has nothing to call, whatever modules of the room it has imported."""
    code = "import django_jobs.faults.arming, django_jobs.faults.kinds as k; from django_jobs import faults; print(faults.plan)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert found.stdout == "None\n"


def test_armed_point_acts_once_at_the_nth_time() -> None:
    """It acts when its own point is reached so often, once, and no longer than the block."""
    seen: list[str] = []
    with faults.armed("claim.before", seen.append, nth=2) as fired:
        come_to("claim.after_commit", times=3)
        come_to("claim.before")
        assert (seen, fired()) == ([], False)
        come_to("claim.before", times=3)
        assert (seen, fired()) == (["default"], True)
    come_to("claim.before", times=5)

    assert seen == ["default"]
    assert faults.plan is None


def test_armed_point_acts_once_for_all_threads() -> None:
    """Many threads at the point are counted together."""
    seen: list[str] = []
    with faults.armed("handler.before", seen.append, nth=8):
        threads = [threading.Thread(target=come_to, args=("handler.before", 5)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert seen == ["default"]


def test_recording_keeps_the_order() -> None:
    """A dry run tells which points a job comes to."""
    with faults.recorded() as seen:
        come_to("claim.before")
        come_to("handler.before", times=2)

    assert seen == ["claim.before", "handler.before", "handler.before"]


def test_undeclared_name_is_an_error_while_something_is_armed() -> None:
    """A call that names no point of the table fails in tests."""
    with faults.recorded(), pytest.raises(ValueError, match="There is no fault point"):
        come_to("claim.never")


def test_fault_leaves_its_marker_and_never_fires_again_while_it_is_there(tmp_path: Path) -> None:
    """A process that takes the place of the one that was hit is left alone."""
    fault = Fault(point="claim.before", kind="raise", marker=str(tmp_path / "fired"))

    with pytest.raises(kinds.InjectedError):
        fault.fire("default")
    fault.fire("default")

    told = json.loads((tmp_path / "fired").read_text())
    assert (told["point"], told["kind"], told["pid"]) == ("claim.before", "raise", os.getpid())
    assert [path.name for path in tmp_path.iterdir()] == ["fired"]


def test_environment_arms_and_a_file_changes_what_is_armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running processes follow the file: one fault after the other, and none while it is not there."""
    file, seen = tmp_path / "fault", []
    monkeypatch.setitem(kinds.KINDS, "raise", seen.append)
    arming.arm_from_environment(supervisor=1, environment={VARIABLE: f"@{file}", "PYTEST_CURRENT_TEST": "this"})
    come_to("claim.before")
    for number, point in enumerate(["claim.before", "handler.before"]):
        file.write_text(Fault(point=point, kind="raise", nth=2, marker=str(tmp_path / str(number))).to_json())
        come_to("claim.before", times=2)
        come_to("handler.before", times=2)
    file.unlink()
    come_to("claim.before", times=2)

    assert len(seen) == 2
    assert (tmp_path / "1").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"point": "claim.before"}', "takes a JSON object with point, kind, marker"),
        ('{"point": "claim.never", "kind": "kill", "marker": "m"}', "There is no fault point"),
        ('{"point": "claim.before", "kind": "stab", "marker": "m"}', "There is no kind of fault"),
        ('{"point": "claim.before", "kind": "kill", "marker": ""}', "needs a marker"),
        ('{"point": "claim.before", "kind": "kill", "marker": "m", "nth": 0}', "from 1 on"),
        ("kill", "takes a JSON object"),
        ("[]", "takes a JSON object"),
    ],
)
def test_what_cannot_be_a_fault_is_refused(text: str, said: str) -> None:
    """A worker says what is wrong instead of running without the fault."""
    with pytest.raises(ValueError, match=said):
        arming.arm_from_environment(supervisor=1, environment={VARIABLE: text, "PYTEST_CURRENT_TEST": "this"})


def test_real_site_is_refused(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DEBUG and outside of tests the variable is an error; with DEBUG, in tests or without it, it is not."""
    settings.DEBUG = False
    monkeypatch.setattr(arming, "is_test_run", lambda environment: False)

    assert "set" in arming.refusal(REAL)
    assert arming.refusal({}) == ""
    with pytest.raises(ValueError, match="DEBUG and in test runs only"):
        arming.arm_from_environment(supervisor=1, environment=REAL)
    settings.DEBUG = True
    assert arming.refusal(REAL) == ""


def test_this_is_a_test_run() -> None:
    """Pytest is seen in programs that it started, and Django's own set-up of tests in the process itself."""
    assert arming.is_test_run({"PYTEST_CURRENT_TEST": "this"})
    assert arming.is_test_run({})


@pytest.mark.parametrize(
    ("module", "other", "ids"),
    [
        ("django_jobs.testing.worker_settings", {}, "[]"),
        ("testproject.settings", {}, "['django_jobs.E002']"),
        ("testproject.settings", {"DJANGO_JOBS_TEST_RUN": "1", "DJANGO_JOBS_KIT": "{}"}, "['django_jobs.E002']"),
    ],
)
def test_workers_of_the_kit_are_known_by_their_settings(module: str, other: dict[str, str], ids: str) -> None:
    """A process of nobody's test is refused, whatever variables of ours are in its environment."""
    given = {
        "settings": "testproject.settings",
        "databases": {},
        "rules": {},
    }
    program = (
        "import django; django.setup(); from django.conf import settings; settings.DEBUG = False; "
        "from django_jobs import checks; print([found.id for found in checks.check_faults()])"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    ours = {VARIABLE: "{}", "DJANGO_JOBS_KIT": json.dumps(given), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment = {**kept, **ours, **other, "DJANGO_SETTINGS_MODULE": module}

    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)

    assert (ran.stdout.strip(), ran.returncode) == (ids, 0), ran.stderr


def test_check_and_worker_refuse_the_variable(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """E002 stops commands, and a worker that skips the checks refuses by itself."""
    settings.DEBUG = False
    monkeypatch.setenv(VARIABLE, "{}")
    monkeypatch.setattr(arming, "is_test_run", lambda environment: False)

    assert [message.id for message in checks.check_faults()] == ["django_jobs.E002"]
    with pytest.raises(CommandError, match="test runs only"):
        call_command("runworker", "--no-reload", skip_checks=True)
