"""System checks: each says what is wrong, why, and how to mend it, and none cries on a sound project."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core import checks as django_checks
from django.core.checks import CheckMessage
from django.db import connections
from django.db.utils import ConnectionHandler

from django_jobs import checks, effect, job
from django_jobs.apps import DjangoJobsConfig
from django_jobs.define import registry
from django_jobs.effects import adapter
from testproject.databases import SQLITE_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
SOUND = {"ENGINE": "django.db.backends.sqlite3", "NAME": "/tmp/x.sqlite3", "OPTIONS": SQLITE_OPTIONS}


def ids(found: list[CheckMessage]) -> list[str | None]:
    """Return the ids of messages; each of them must have a hint."""
    assert all(message.hint for message in found)
    return [message.id for message in found]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Point aliases at other settings without opening a connection."""

    def replace(**databases: dict[str, Any]) -> None:
        handler = ConnectionHandler({"default": SOUND, **databases})
        monkeypatch.setattr(checks, "connections", handler)

    return replace


def test_sound_project_has_no_message(settings: Any) -> None:
    """The test project passes every check that needs no connection."""
    assert django_checks.run_checks(tags=[checks.TAG], databases=[]) == []


def test_checks_are_registered_with_the_tag() -> None:
    """All checks run under one tag; the one that connects runs for databases alone."""
    registered = {check.__name__ for check in django_checks.registry.registry.get_checks() if checks.TAG in check.tags}

    assert registered == {name for name in vars(checks) if name.startswith("check_")}
    assert django_checks.Tags.database in checks.check_database_version.tags  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"BUDGETS": 1}, "DJANGO_JOBS has no setting 'BUDGETS'. Did you mean BUDGET?"),
        ({"THREADS": 0}, "DJANGO_JOBS['THREADS'] must be a whole number"),
        ("nonsense", "DJANGO_JOBS must be a dict"),
    ],
)
def test_wrong_settings_are_an_error(settings: Any, given: Any, said: str) -> None:
    """Each problem of the settings is an error of its own, and no other check stumbles over it."""
    settings.DJANGO_JOBS = given

    found = django_checks.run_checks(tags=[checks.TAG], databases=[])

    assert ids(found) == ["django_jobs.E001"]
    assert found[0].msg.startswith(said)
    assert found[0].is_serious()


def test_wrong_settings_do_not_stop_the_start(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app gets ready with wrong settings, so that the check can say what is wrong; nothing is imported then."""
    imported: list[bool] = []
    monkeypatch.setattr("django_jobs.define.registry.autodiscover", lambda: imported.append(True))
    config = apps.get_app_config("django_jobs")
    assert isinstance(config, DjangoJobsConfig)

    settings.DJANGO_JOBS = {"THREADS": 0}
    config.ready()
    assert imported == []

    settings.DJANGO_JOBS = {}
    config.ready()
    assert imported == [True]


@pytest.fixture
def odd_job() -> Iterator[Any]:
    """A job type whose function tests spoil after its declaration."""

    @job(type="tests.odd", owner="nobody", aliases=("tests.odd_before",))
    def handler(number: int) -> None:
        """Do nothing."""

    yield handler
    registry.unregister("tests.odd")


def test_annotation_that_names_nothing_is_an_error(odd_job: Any) -> None:
    """A handler whose annotations cannot be resolved is told once, whatever aliases it has."""
    odd_job.definition.func.__annotations__["number"] = "Gone"
    checks.type_hints.cache_clear()

    found = checks.check_registry()

    assert ids(found) == ["django_jobs.E101"]
    assert "tests.odd" in found[0].msg
    assert "Gone" in found[0].msg


@pytest.mark.parametrize("which", ["operation", "compensation", "question"])
def test_annotation_of_an_effect_that_names_nothing_is_an_error(which: str) -> None:
    """The operation, what takes it back, and the question about that are all looked at."""

    def act(call: Any, *, order: int) -> Any: ...
    def back(call: Any, confirmed: Any, *, order: int) -> Any: ...
    def ask(call: Any, confirmed: Any, *, order: int) -> Any: ...

    {"operation": act, "compensation": back, "question": ask}[which].__annotations__["order"] = "Nothing"
    operation = effect("odd.act", dedupe="none")(act)
    operation.compensation(back).reconcile(ask)
    try:
        (found,) = checks.check_effects()
    finally:
        adapter._declared.pop("odd.act")

    assert found.id == "django_jobs.E106"
    assert "Nothing" in found.msg


def test_handler_of_a_script_is_a_warning(odd_job: Any) -> None:
    """A worker is another process and never finds what a script declares."""
    odd_job.definition.func.__module__ = "__main__"

    assert ids(checks.check_registry()) == ["django_jobs.W102"]


def test_owner_without_an_entry_is_a_warning(odd_job: Any) -> None:
    """An owner that nobody can reach is told once, with the job types that name it."""
    (found,) = checks.check_owners()

    assert ids([found]) == ["django_jobs.W301"]
    assert found.msg == "Owner 'nobody' has no entry in DJANGO_JOBS['OWNERS'], so nobody is told about tests.odd."


def test_other_runworker_is_a_warning(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app with a command of the same name is told, whichever wins, with the command that always works."""
    commands = tmp_path / "channels" / "management" / "commands"
    commands.mkdir(parents=True)
    for folder in (commands, commands.parent, commands.parent.parent):
        (folder / "__init__.py").touch()
    (commands / "runworker.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert checks.check_commands() == []
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "channels"]
    try:
        (found,) = checks.check_commands()
    finally:
        sys.modules.pop("channels", None)

    assert ids([found]) == ["django_jobs.W401"]
    assert "'channels'" in found.msg
    assert "jobs work" in str(found.hint)


def test_sound_sqlite_has_no_message(use: Any) -> None:
    """SQLite with a write-ahead log, immediate transactions and full synchronisation is supported."""
    use()

    assert checks.check_database_settings() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"NAME": ":memory:"}, ["django_jobs.W202"]),
        ({"NAME": "file:x?mode=memory&cache=shared"}, ["django_jobs.W202"]),
        ({"OPTIONS": {}}, ["django_jobs.W203", "django_jobs.W204"]),
        ({"OPTIONS": {**SQLITE_OPTIONS, "init_command": ""}}, ["django_jobs.W203"]),
        ({"OPTIONS": {**SQLITE_OPTIONS, "transaction_mode": "DEFERRED"}}, ["django_jobs.W204"]),
        ({"OPTIONS": {**SQLITE_OPTIONS, "transaction_mode": "exclusive"}}, []),
        ({"OPTIONS": {**SQLITE_OPTIONS, "init_command": "pragma journal_mode = WAL; pragma synchronous = 1"}}, ["django_jobs.W205"]),
        ({"OPTIONS": {**SQLITE_OPTIONS, "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=OFF;"}}, ["django_jobs.W205"]),
        ({"OPTIONS": {**SQLITE_OPTIONS, "init_command": "PRAGMA journal_mode=WAL"}}, []),
    ],
)  # fmt: skip
def test_sqlite_options_that_bite_are_warnings(use: Any, changes: dict[str, Any], expected: list[str]) -> None:
    """Each option that makes workers block, fail or forget is told with the line that mends it."""
    use(default={**SOUND, **changes})

    assert ids(checks.check_database_settings()) == expected


def test_postgresql_settings_have_no_message(use: Any) -> None:
    """On PostgreSQL the job database needs no option."""
    use(default={"ENGINE": "django.db.backends.postgresql", "NAME": "x", "OPTIONS": {"pool": {"max_size": 1}}})

    assert checks.check_database_settings() == []
    assert checks.check_pools() == []


def test_other_database_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is not supported is refused in clear words, with the way out."""
    monkeypatch.setattr(type(connections["default"]), "vendor", "oracle")
    monkeypatch.setattr(type(connections["default"]), "display_name", "Oracle")

    (found,) = checks.check_database_settings()

    assert ids([found]) == ["django_jobs.E201"]
    assert "which is Oracle; django_jobs runs on PostgreSQL and SQLite only" in found.msg
    assert "router" in str(found.hint)
    assert found.is_serious()


def test_database_without_jobs_may_be_anything(use: Any, settings: Any) -> None:
    """Only where jobs are stored does the kind of database matter."""
    use(legacy={"ENGINE": "django.db.backends.dummy", "NAME": "x"})

    assert checks.check_database_settings() == []
    assert checks.check_database_version(databases=["legacy"]) == []


@pytest.mark.parametrize(
    ("pool", "threads", "told"),
    [
        (None, 4, False),
        (True, 4, False),
        (True, 5, True),
        ({"max_size": 3}, 4, True),
        ({"max_size": 4}, 4, False),
        ({"min_size": 2}, 3, True),
    ],
)
def test_pool_smaller_than_the_threads_is_a_warning(
    use: Any, settings: Any, pool: Any, threads: int, told: bool
) -> None:
    """Handlers that use another database wait for one another if its pool has fewer connections than threads."""
    settings.DJANGO_JOBS = {"THREADS": threads}
    use(other={"ENGINE": "django.db.backends.postgresql", "NAME": "x", "OPTIONS": {"pool": pool}})

    found = checks.check_pools()

    assert ids(found) == (["django_jobs.W206"] if told else [])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"TRANSACTION_POOLER": True}, True),
        ({"TRANSACTION_POOLER": True, "LISTEN_DSN": "host=db"}, False),
        ({"TRANSACTION_POOLER": True, "NOTIFY": False}, False),
        ({}, False),
    ],
)
def test_pooler_without_a_direct_line_is_a_warning(use: Any, settings: Any, given: Any, told: bool) -> None:
    """Notifications are wanted by default, and a declared pooler cannot give them."""
    settings.DJANGO_JOBS = given
    use(default={"ENGINE": "django.db.backends.postgresql", "NAME": "x"})
    assert ids(checks.check_listening()) == (["django_jobs.W209"] if told else [])

    use()
    assert checks.check_listening() == [], "SQLite has no notifications"


@pytest.mark.django_db
def test_supported_version_has_no_message() -> None:
    """The database of this run is new enough; without a database nothing is asked."""
    assert checks.check_database_version(databases=["default"]) == []


@pytest.mark.sqlite
@pytest.mark.django_db
def test_old_sqlite_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQLite older than what is supported is refused by its version."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))

    (found,) = checks.check_database_version(databases=["default"])

    assert ids([found]) == ["django_jobs.E207"]
    assert found.msg == "This is SQLite 3.36.0; django_jobs needs 3.37 or later."


@pytest.mark.postgres
@pytest.mark.django_db
def test_old_postgresql_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PostgreSQL older than what is supported is refused by its version."""
    monkeypatch.setattr(checks, "OLDEST_POSTGRESQL", 99)

    (found,) = checks.check_database_version(databases=["default"])

    assert ids([found]) == ["django_jobs.E208"]
    assert re.fullmatch(r"This is PostgreSQL \d+; django_jobs needs 99 or later\.", found.msg)


@pytest.mark.django_db
def test_version_is_asked_only_of_given_databases(django_assert_num_queries: Any) -> None:
    """A check without --database opens no connection."""
    with django_assert_num_queries(0):
        assert checks.check_database_version() == []


def test_documentation_lists_every_check_and_finding() -> None:
    """The reference page names every id that the code can give, and none that it cannot."""
    page = (ROOT / "docs" / "reference" / "checks.md").read_text()
    code = "".join((ROOT / "django_jobs" / name).read_text() for name in ("checks.py", "backends/tasks.py"))
    doctor = "".join(path.read_text() for path in (ROOT / "django_jobs" / "operate").glob("doctor*.py"))
    findings = set(re.findall(r'(?:warning|info)\(\s*"([a-z-]+)"', doctor)) | set(re.findall(r'id="([a-z-]+)"', doctor))

    listed = re.findall(r"^\| `([a-z-]+|django_jobs\.[EW]\d{3})` \|", page, re.MULTILINE)

    assert len(listed) == len(set(listed))
    assert set(listed) == set(re.findall(r'"(django_jobs\.[EW]\d{3})"', code)) | findings
    assert len(findings) > 15
