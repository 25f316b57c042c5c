"""``manage.py jobs``: what each verb prints for people and for programs, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_jobs import clock
from django_jobs.management.verbs import VERBS
from django_jobs.models import Attempt, IdempotencyKey, Job, JobPayload, PrunedStretch, Worker
from django_jobs.operate.verify import invariants
from tests.integration.operate.healthy import healthy
from tests.integration.operate.stories import Story

ROOT = Path(__file__).resolve().parents[3]


def jobs(*arguments: object) -> tuple[str, int]:
    """Run a verb here; returns what it printed and its exit code."""
    out = StringIO()
    try:
        call_command("jobs", *map(str, arguments), stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(str(end.code))
    return out.getvalue(), 0


def program(*arguments: object, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as a program of its own."""
    return subprocess.run(
        [sys.executable, "manage.py", "jobs", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "DATABASE_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def charged() -> Story:
    """A dead letter after a charge, with everything that show can show."""
    story = Story(key="order:7", subject="order:7").duplicate().claim().step()
    story.effect(can_reconcile=True).send().answer("unknown").ask("succeeded")
    Story().claim().adopt(story.effect("order:8").send().answer("confirmed").row)
    return story.lose().claim(alone="child").fail(dead="unknown_budget")


@pytest.mark.django_db
def test_show_prints_everything() -> None:
    """Fields, payload, key, attempts, effects, sends, questions, adoptions, steps and duplicates are printed."""
    story = charged()

    text, code = jobs("show", story.job.pk)

    headings = [line for line in text.splitlines() if line.isupper() and line.replace(" ", "").isalnum()]
    assert [line for line in headings if not line.startswith("NUMBER")] == [
        "JOB", "PAYLOAD", "IDEMPOTENCY KEY", "ATTEMPTS", "TRACEBACK OF ATTEMPT 2", "EFFECT CHARGE", "SENDS",
        "RECONCILIATIONS", "EFFECT CHARGE", "SENDS", "ADOPTIONS", "STEPS", "DUPLICATES",
    ]  # fmt: skip
    assert "never observed; may have succeeded; exit" in text
    assert str(story.job.pk) in text
    assert code == 0


@pytest.mark.django_db
def test_show_prints_adopted_effects_and_open_attempts() -> None:
    """An adopted effect is told as such; an open attempt, a late write and a run past the budget too."""
    owner, adopter = Story().claim(), Story().claim()
    adopter.adopt(owner.effect().send().answer("confirmed").row)
    Attempt.objects.filter(job=adopter.job).update(over_budget=True, refused_count=2)

    text, _ = jobs("show", adopter.job.pk)

    assert "ADOPTED EFFECT CHARGE" in text
    assert "open" in text
    assert "past its budget; late writes refused: 2" in text


@pytest.mark.django_db
def test_show_as_json_has_every_table() -> None:
    """Programs get all rows with their columns, times in UTC."""
    story = charged()

    text, _ = jobs("show", story.job.pk, "--json")
    shown = json.loads(text)

    assert len(text.splitlines()) == 1
    assert shown["job"]["id"] == str(story.job.pk)
    assert shown["payload"]["arguments"] == {"order_id": 7}
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["lost", "failed"]
    assert shown["effects"][0]["sends"][0]["outcome"] == "unknown"
    assert shown["effects"][0]["reconciliations"][0]["verdict"] == "succeeded"
    assert len(shown["effects"][1]["adoptions"]) == len(shown["steps"]) == len(shown["duplicates"]) == 1
    assert shown["key"]["key"] == "order:7"
    assert shown["job"]["created_at"].endswith("Z")
    assert set(shown["job"]) == {field.attname for field in Job._meta.concrete_fields}


@pytest.mark.django_db
def test_show_without_a_payload_says_so() -> None:
    """A missing payload is told; a stored text that is no JSON is hidden."""
    story, other = Story(), Story()
    JobPayload.objects.filter(pk=story.job.pk).delete()
    JobPayload.objects.filter(pk=other.job.pk).update(arguments="card=4111")

    assert "PAYLOAD\nmissing" in jobs("show", story.job.pk)[0]
    assert "4111" not in jobs("show", other.job.pk)[0]


@pytest.mark.django_db
def test_explain_prints_its_sections() -> None:
    """The five questions are headings, with their answers below."""
    text, code = jobs("explain", charged().job.pk)

    headings = [line for line in text.splitlines() if line.isupper()]
    assert headings == [
        "WHAT WAS INTENDED", "WHO CLAIMED IT", "WHAT HAPPENED TO EACH SIDE EFFECT", "WHAT IS NEXT",
        "WOULD A REPLAY BE SAFE",
    ]  # fmt: skip
    assert code == 0


@pytest.mark.django_db
def test_explain_as_json_has_the_plan() -> None:
    """Programs get the sections, and the plan per effect."""
    story = Story().claim()
    effect = story.effect().send().answer("unknown")
    story.fail(dead="unknown_budget")

    told = json.loads(jobs("explain", story.job.pk, "--json")[0])

    assert told["job"] == str(story.job.pk)
    assert len(told["sections"]) == 5
    assert told["replay"]["safe"] is True
    assert told["replay"]["refused"] == ""
    (plan,) = told["replay"]["effects"]
    assert (plan["id"], plan["on_replay"], plan["business_key"]) == (str(effect.row.pk), "same_key", "order:7")
    assert plan["until"].endswith("Z")


@pytest.mark.django_db
def test_stored_text_cannot_drive_the_terminal() -> None:
    """Control characters in an error's message reach no terminal."""
    story = Story().claim().fail(message="\x1b[2Jgone", dead="unknown_budget")

    for verb in ("explain", "show"):
        assert "\x1b" not in jobs(verb, story.job.pk)[0]


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["show", "explain"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0199", "no job id"),
        ("nonsense", "no job id"),
        (uuid.UUID(int=1), "There is no job"),
        ("0199aaaa", "More than one"),
    ],
)
def test_job_that_cannot_be_told_is_a_usage_error(verb: str, text: object, said: str) -> None:
    """What is no id, unknown or ambiguous ends with exit code 2 and the mend."""
    for number in (1, 2):
        Story(id=uuid.UUID(f"0199aaaa-0000-7000-8000-00000000000{number}"))

    with pytest.raises(CommandError, match=said) as refused:
        jobs(verb, text)

    assert refused.value.returncode == 2


@pytest.mark.django_db
def test_list_is_a_table_for_people() -> None:
    """Jobs are aligned under headings; a loss says what it is, and a resolution is told."""
    Story().claim().fail(dead="age").discard()
    lost = Story(key="order:7").claim().lose()

    text, code = jobs("list")

    first, second, third = text.splitlines()
    assert first.split() == ["JOB", "TYPE", "QUEUE", "STATE", "ATTEMPTS", "KEY", "OR", "SUBJECT", "CREATED", "NOTE"]
    assert second.startswith(str(lost.job.pk))
    assert "order:7" in second
    assert second.endswith("1 loss: never observed; may have succeeded")
    assert "dead_lettered (discarded)" in third
    assert third.endswith("age; shop.PaymentError")
    assert code == 0


@pytest.mark.django_db
def test_list_prints_a_line_of_json_per_job() -> None:
    """Programs get one object a line, loss included."""
    Story(key="order:7", owner="billing").claim().lose()
    Story(subject="order:8")

    newest, lost = map(json.loads, jobs("list", "--json")[0].splitlines())

    assert (newest["subject"], newest["loss"], newest["losses"]) == ("order:8", "", 0)
    assert (lost["key"], lost["owner"]) == ("order:7", "billing")
    assert (lost["loss"], lost["losses"]) == ("never observed; may have succeeded", 1)


@pytest.mark.django_db
def test_list_hands_on_every_filter() -> None:
    """Each option reaches the filter of its name."""
    wanted = (
        Story(job_type="shop.note_order", queue_name="mail", subject="order:7", key="order:7")
        .claim()
        .lose()
        .claim(alone="child")
        .fail(dead="age")
    )
    newer = Story()
    options = [
        ("--state", "dead_lettered"), ("--type", "shop.note_order"), ("--queue", "mail"), ("--subject", "order:7"),
        ("--key", "order:7"), ("--lost",), ("--dead",), ("--before", newer.job.pk),
    ]  # fmt: skip
    for option in options:
        listed = jobs("list", "--json", *option)[0].splitlines()
        assert [json.loads(line)["id"] for line in listed] == [str(wanted.job.pk)], option

    assert jobs("list", "--since", "1m")[0] == "No job matches.\n"
    assert len(jobs("list", "--since", "1h", "--json")[0].splitlines()) == 2


@pytest.mark.django_db
def test_list_says_how_to_go_on() -> None:
    """A page that is not the last one ends with the option for the next."""
    ids = [Story().job.pk for _ in range(3)]

    text, _ = jobs("list", "--limit", 2)

    assert text.splitlines()[-1] == f"More: add --before {ids[1]}"
    assert "More" not in jobs("list", "--before", ids[1])[0]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "arguments",
    [
        ("--limit", "0"), ("--limit", "1001"), ("--limit", "x"), ("--before", "0199aaaa"), ("--state", "paused"),
        ("--since", "yesterday"), ("--since", "9999-12-31T23:59:59-14:00"),
    ],
)  # fmt: skip
def test_list_refuses_options_that_cannot_work(arguments: tuple[str, ...]) -> None:
    """A wrong option is refused before anything is listed."""
    with pytest.raises(CommandError):
        jobs("list", *arguments)


@pytest.mark.django_db
@pytest.mark.parametrize("since", ["0001-01-01", "0001-01-01T00:00:00Z", "1969-12-31"])
def test_list_goes_back_to_the_beginning_of_time(since: str) -> None:
    """A time before every job lists them all."""
    Story()
    assert len(jobs("list", "--since", since, "--json")[0].splitlines()) == 1


@pytest.mark.django_db
def test_verify_prints_each_invariant() -> None:
    """On a healthy database every invariant is ok, with its meaning, and the exit code is 0."""
    healthy()

    text, code = jobs("verify")

    *each, last = text.splitlines()
    assert [line.split()[:2] for line in each] == [[item.name, "ok"] for item in invariants()]
    assert f"{len(each)} of {len(each)} invariants hold in database 'default'" in last
    assert "Pruned before, and taken into account: all rows of 1 job." in last
    PrunedStretch.objects.all().delete()
    IdempotencyKey.objects.filter(expires_at__isnull=False).delete()
    assert "Nothing has been pruned" in jobs("verify")[0]
    assert code == 0


@pytest.mark.django_db
def test_verify_prints_the_ids_and_fails() -> None:
    """A violated invariant is followed by the ids, at most twenty, and the exit code is 1."""
    stories = [Story() for _ in range(22)]
    Job.objects.update(unknown_count=1)

    text, code = jobs("verify")

    assert code == 1
    assert "J3   VIOLATED" in text
    assert f"       job {stories[0].job.pk}" in text
    assert text.count("       job ") == 20
    assert "       and 2 more; --json prints all" in text
    many = len(invariants())
    assert f"{many - 1} of {many} invariants hold" in text


@pytest.mark.django_db
def test_verify_as_json_has_all_ids() -> None:
    """Programs get every invariant with all ids, and the same exit code."""
    ids = sorted(str(Story().job.pk) for _ in range(22))
    assert json.loads(jobs("verify", "--json")[0])["clean"] is True
    Job.objects.update(unknown_count=1)

    text, code = jobs("verify", "--json")
    report = json.loads(text)

    violated = [item for item in report["invariants"] if item["violated_by"]]
    assert (code, report["clean"], report["database"], report["pruned"]) == (1, False, "default", [])
    assert [(item["name"], item["about"], item["violated_by"]) for item in violated] == [("J3", "job", ids)]


@pytest.mark.django_db
def test_doctor_prints_findings_with_their_mends() -> None:
    """A warning comes with its id and mend and makes the exit code 1."""
    Story()

    text, code = jobs("doctor")

    assert code == 1
    assert "WARNING no-worker: No worker is alive, and jobs wait in payments.\n    Start 'manage.py runworker'." in text
    assert text.splitlines()[-1] == "1 thing to mend in database 'default'."


@pytest.mark.django_db
def test_doctor_is_content_with_a_healthy_site() -> None:
    """Without a warning the exit code is 0."""
    text, code = jobs("doctor")

    assert text.splitlines()[-1] == "Nothing to mend in database 'default'."
    assert code == 0


@pytest.mark.django_db
def test_doctor_as_json_has_levels() -> None:
    """Programs get each finding with id, level, text and mend."""
    story = Story(job_type="shop.note_order").claim().fail(dead="age")
    story.pass_time()
    Attempt.objects.update(finished_at=story.now)

    text, code = jobs("doctor", "--json", "--long", 1)
    found = json.loads(text)

    assert (code, found["clean"], found["database"]) == (1, False, "default")
    assert {item["id"]: item["level"] for item in found["findings"]} == {
        "long-atomic": "warning",
        "dead-letters": "info",
    }
    assert all(item["text"] and item["mend"] for item in found["findings"])


@pytest.mark.django_db
@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_unknown_database_is_a_usage_error(verb: str) -> None:
    """Every verb takes --database and refuses one that does not exist."""
    pause = ("queue", "mail", "--as", "ann")
    wanted = {
        "show": (uuid.uuid4(),),
        "explain": (uuid.uuid4(),),
        **dict.fromkeys(("replay", "discard", "run-now", "expire-lease", "cancel-replay"), (uuid.uuid4(),)),
        **dict.fromkeys(("cancel", "compensate", "redispatch", "discard-delivery"), (uuid.uuid4(),)),
        "resolve": (uuid.uuid4(), "--not-applied", "--evidence", "the provider knows nothing of it"),
        "reroute": ("shop.order.paid",),
        "crashtest": ("shop.charge",),
        "run-schedule": ("shop.report",),
        "bound": ("payments-api",),
        "drain-worker": ("web-1",),
        "subscriptions": ("list",),
        "resume": pause,
        "pause": (*pause, "--reason", "why"),
    }
    job = wanted.get(verb, ())

    with pytest.raises(CommandError, match="There is no database 'nowhere' in DATABASES") as refused:
        jobs(verb, *job, "--database", "nowhere")

    assert refused.value.returncode == 2


@pytest.mark.parametrize("arguments", [(), ("replant",)])
def test_unknown_verb_is_refused(arguments: tuple[str, ...]) -> None:
    """Without a verb, or with one that does not exist, nothing is done."""
    with pytest.raises(CommandError):
        jobs(*arguments)


@pytest.mark.django_db(transaction=True)
def test_missing_tables_are_told_in_one_sentence(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database without our tables ends with a sentence that names the mend, not with a traceback."""
    monkeypatch.setattr(Job._meta, "db_table", "django_jobs_gone")

    with pytest.raises(CommandError, match="Is it running and migrated\\?") as refused:
        jobs("list")

    assert refused.value.returncode == 1
    connection.close()


@pytest.mark.django_db(transaction=True)
def test_work_is_runworker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb takes a worker's options, runs the system checks first, and hands on the exit code."""
    given: dict[str, Any] = {}
    checked: list[bool] = []
    monkeypatch.setattr("django_jobs.management.verbs.work", lambda options: given.update(options) or 3)
    monkeypatch.setattr("django_jobs.management.commands.jobs.Command.check", lambda self: checked.append(True))

    _, code = jobs("work", "--queue", "mail", "--threads", 2, "--drain")

    assert (code, checked) == (3, [True])
    assert (given["queues"], given["threads"], given["drain"], given["database"]) == (["mail"], 2, True, "default")


@pytest.mark.django_db(transaction=True)
def test_programs_see_the_exit_codes(database_url: str) -> None:
    """As a program: 0 when all is well, 1 with the ids when not, in the database of the environment."""
    Worker.objects.create(
        name="web", pid=1, started_at=clock.now(), heartbeat_at=clock.now(), job_types='["shop.charge_order"]'
    )
    story = Story()
    well = program("verify", url=database_url)
    Job.objects.update(unknown_count=1)
    ill = program("verify", "--json", url=database_url)

    assert (well.returncode, well.stderr) == (0, "")
    assert ill.returncode == 1
    assert str(story.job.pk) in ill.stdout


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "{job}"), 0, "IDEMPOTENCY KEY"),
        (("explain", "{job}"), 0, "WOULD A REPLAY BE SAFE"),
        (("list",), 0, "order:7"),
        (("doctor",), 1, "no-worker"),
        (("show", "0199"), 2, "no job id"),
        (("list", "--since", "yesterday"), 2, "is no time"),
        (("list", "--limit", "0"), 2, "usage: manage.py jobs list"),
        (("replant",), 2, "usage: manage.py jobs"),
        ((), 2, "usage: manage.py jobs"),
        (("verify", "--database", "nowhere"), 2, "no database 'nowhere'"),
        (("work", "--threads", "0"), 2, "usage: manage.py jobs work"),
        (("work", "--drain", "--queue", "nothing-waits-here"), 0, ""),
        (("work", "--name", "x" * 129), 2, "more than 128; shorten it"),
        (("work", "--recycle-jobs", "0"), 2, "not a whole number of at least 1"),
        (("work", "--drain", "--queue", "a", "--exclude-queue", "b"), 2, "together with --queue it means nothing"),
    ],
)
def test_program_ends_with_its_code(database_url: str, arguments: tuple[str, ...], code: int, said: str) -> None:
    """Each verb as a program: its exit code, and a sentence instead of a traceback."""
    story = Story(key="order:7")

    done = program(*(item.format(job=story.job.pk) for item in arguments), url=database_url)

    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.sqlite
def test_program_without_tables_says_what_to_do(tmp_path: Path) -> None:
    """An empty database is told in one sentence."""
    done = program("verify", url=f"sqlite:///{tmp_path / 'empty.sqlite3'}")

    assert done.returncode == 1
    assert "Is it running and migrated?" in done.stderr
    assert "Traceback" not in done.stderr
