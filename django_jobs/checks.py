"""System checks: settings, job types and database options that cannot work, or will bite later.

``docs/reference/checks.md`` lists them. Those that need a connection run with ``check --database``, and in the commands
that pass a database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004
from django.db import connections, router

from django_jobs.conf import get_settings, problems
from django_jobs.define import registry
from django_jobs.define.definition import refuse_ambiguous, type_hints
from django_jobs.effects.adapter import declared_effects
from django_jobs.exceptions import DefinitionError
from django_jobs.faults.arming import refusal
from django_jobs.hooks import wrong_paths

TAG = "django_jobs"
OLDEST_SQLITE = (3, 37)
OLDEST_POSTGRESQL = 15
_IMMEDIATE = {"IMMEDIATE", "EXCLUSIVE"}


def register() -> None:
    """Make the checks known to Django; called once, when the app is ready."""
    for check in (
        check_settings,
        check_faults,
        check_hooks,
        check_registry,
        check_resources,
        check_routes,
        check_publishers,
        check_effects,
        check_owners,
        check_commands,
        check_database_settings,
        check_pools,
        check_listening,
    ):
        checks.register(check, TAG)
    checks.register(check_database_version, TAG, checks.Tags.database)


def check_settings(**_: object) -> list[CheckMessage]:
    """E001: the settings dict is wrong."""
    return [
        Error(text, hint="See the settings page of the documentation for names and values.", id="django_jobs.E001")
        for text in _setting_problems()
    ]


def _setting_problems() -> list[str]:
    return problems(getattr(settings, "DJANGO_JOBS", {}))


def check_faults(**_: object) -> list[CheckMessage]:
    """E002: the environment of a real site asks for a fault."""
    hint = "Take DJANGO_JOBS_FAULT out of the environment; it is for tests of crashes."
    return [Error(why, hint=hint, id="django_jobs.E002") for why in [refusal()] if why]


def check_hooks(**_: object) -> list[CheckMessage]:
    """E003, E004: a propagator or a middleware of the settings cannot be used."""
    if _setting_problems():
        return []
    ids = {"CONTEXT": "django_jobs.E003", "MIDDLEWARE": "django_jobs.E004"}
    return [
        Error(
            f"DJANGO_JOBS[{setting!r}]: {why}",
            hint="Give the dotted path of a class that can be made without arguments, or of an object.",
            id=ids[setting],
        )
        for setting, why in wrong_paths()
    ]


def check_registry(**_: object) -> list[CheckMessage]:
    """E101, W102: a job type cannot be run, or not by a worker."""
    found: list[CheckMessage] = []
    for name, definition in registry.definitions():
        if name != definition.job_type:
            continue  # an alias
        try:
            refuse_ambiguous(definition)
        except DefinitionError as error:
            found.append(
                Error(
                    f"Job type {name!r}: {error}",
                    hint="Values are restored by the annotations: import the names that they use, also at run time.",
                    obj=definition.func,
                    id="django_jobs.E101",
                )
            )
        if definition.func.__module__ == "__main__":
            found.append(
                Warning(
                    f"Job type {name!r} is declared in a script, where no worker finds it.",
                    hint="Move it into the jobs module of an app, or name its module in DJANGO_JOBS['IMPORTS'].",
                    obj=definition.func,
                    id="django_jobs.W102",
                )
            )
    return found


def check_resources(**_: object) -> list[CheckMessage]:
    """E107: a job type uses a resource that the settings do not name, so nothing would bound it."""
    if _setting_problems():
        return []
    known = get_settings().resources
    return [
        Error(
            f"Job type {name!r} uses the resource {definition.options.resource!r}, which the settings do not name.",
            hint="Give its bounds in DJANGO_JOBS['RESOURCES'], for example {'limit': 3, 'rate': '100/m'}.",
            obj=definition.func,
            id="django_jobs.E107",
        )
        for name, definition in registry.definitions()
        if name == definition.job_type and definition.options.resource not in {"", *known}
    ]


def check_routes(**_: object) -> list[CheckMessage]:
    """E103: a subscriber or a destination takes events that nobody declares, so it would never get any."""
    from django_jobs.define.events import find_event_type
    from django_jobs.outbox.destinations import routes

    if _setting_problems():
        return []
    return [
        Error(
            f"{route.destination!r} takes events {route.event_type!r} v{route.version}, which nobody declares.",
            hint="Declare them with event_type() in the events module of an app, or correct the name or the version.",
            id="django_jobs.E103",
        )
        for route in routes()
        if find_event_type(route.event_type, route.version) is None
    ]


def check_publishers(**_: object) -> list[CheckMessage]:
    """E104: a destination in the settings has a publisher that cannot be made."""
    from django_jobs.outbox.destinations import make_publisher

    if _setting_problems():
        return []
    found: list[CheckMessage] = []
    for name in get_settings().destinations:
        try:
            make_publisher(name).close()
        except DefinitionError as error:
            hint = "Correct PUBLISHER or the entries that are passed to it."
            found.append(Error(str(error), hint=hint, id="django_jobs.E104"))
    return found


def check_effects(**_: object) -> list[CheckMessage]:
    """E106: a stored request of an effect, or of what takes it back, cannot be restored."""
    found: list[CheckMessage] = []
    for operation in declared_effects().values():
        for each in (operation, operation.taken_back_by):
            for function in (each.declared.send, each.declared.ask) if each else ():
                if function is not None:
                    found.extend(_unresolved(function, f"Effect {each.name!r}" if each else ""))
    return found


def _unresolved(function: Callable[..., Any], what: str) -> Iterator[CheckMessage]:
    try:
        type_hints(function)
    except DefinitionError as error:
        yield Error(
            f"{what}: {error}",
            hint="Values are restored by the annotations: import the names that they use, also at run time.",
            obj=function,
            id="django_jobs.E106",
        )


def check_owners(**_: object) -> list[CheckMessage]:
    """W301: a job type names an owner that nobody can reach."""
    if _setting_problems():
        return []
    known = set(get_settings().owners)
    missing: dict[str, list[str]] = {}
    for name, definition in registry.definitions():
        owner = definition.options.owner
        if owner and owner not in known and name == definition.job_type:
            missing.setdefault(owner, []).append(name)
    return [
        Warning(
            f"Owner {owner!r} has no entry in DJANGO_JOBS['OWNERS'], so nobody is told about {', '.join(types)}.",
            hint=f"Add an entry, for example 'OWNERS': {{{owner!r}: {{'email': ['team@example.com']}}}}.",
            id="django_jobs.W301",
        )
        for owner, types in sorted(missing.items())
    ]


def check_commands(**_: object) -> list[CheckMessage]:
    """W401: another app has a command with the name of ours."""
    others = [config for config in apps.get_app_configs() if config.name != "django_jobs" and _has_runworker(config)]
    return [
        Warning(
            f"App {config.label!r} has a command 'runworker' too; the order of INSTALLED_APPS decides which one runs.",
            hint="Start workers of django_jobs with 'manage.py jobs work', which is the same command.",
            obj=config,
            id="django_jobs.W401",
        )
        for config in others
    ]


def _has_runworker(config: AppConfig) -> bool:
    return (Path(config.path) / "management" / "commands" / "runworker.py").exists()


def check_database_settings(**_: object) -> list[CheckMessage]:
    """E201, W202–W205: the database cannot hold jobs, or its options will bite."""
    from django_jobs.models import Job

    alias = router.db_for_write(Job)
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return list(_sqlite(alias, connection.settings_dict))
    if connection.vendor == "postgresql":
        return []
    return [
        Error(
            f"Jobs would be stored in database {alias!r}, which is {connection.display_name}; django_jobs runs on "
            "PostgreSQL and SQLite only.",
            hint=(
                "Add a PostgreSQL database to DATABASES and send the app 'django_jobs' there with a database router. "
                "Jobs commit together with your rows only if both are in one database."
            ),
            id="django_jobs.E201",
        )
    ]


def _sqlite(alias: str, entry: dict[str, Any]) -> Iterator[CheckMessage]:
    options = entry.get("OPTIONS", {})
    if _in_memory(str(entry.get("NAME", ""))):
        yield Warning(
            f"Database {alias!r} is an SQLite database in memory, which no worker process can see.",
            hint="Give it a file as NAME; in memory is for tests that run no worker.",
            id="django_jobs.W202",
        )
        return
    script = str(options.get("init_command", "")).lower().replace(" ", "")
    if "journal_mode=wal" not in script:
        yield Warning(
            f"Database {alias!r} does not ask SQLite for a write-ahead log: readers and writers block one another.",
            hint="Set OPTIONS['init_command'] = 'PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;'.",
            id="django_jobs.W203",
        )
    if str(options.get("transaction_mode") or "").upper() not in _IMMEDIATE:
        yield Warning(
            f"Database {alias!r} opens deferred transactions: a write after a read fails at once with 'database is "
            "locked' instead of waiting.",
            hint="Set OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
            id="django_jobs.W204",
        )
    if any(f"synchronous={level}" in script for level in ("off", "normal", "0", "1")):
        yield Warning(
            f"Database {alias!r} runs SQLite with less than synchronous=FULL: a power cut can forget an intent "
            "whose call was made.",
            hint="Use 'PRAGMA synchronous=FULL;' in OPTIONS['init_command'].",
            id="django_jobs.W205",
        )


def _in_memory(name: str) -> bool:
    return name == ":memory:" or "mode=memory" in name or name.startswith("file::memory:")


def check_pools(**_: object) -> list[CheckMessage]:
    """W206: handlers of one worker process would wait for one another's connections.

    On the database of the jobs a worker keeps connections of its own and uses no pool.
    """
    from django_jobs.models import Job

    if _setting_problems():
        return []
    threads = get_settings().threads
    found: list[CheckMessage] = []
    for alias in connections:
        pool = connections[alias].settings_dict.get("OPTIONS", {}).get("pool")
        if not pool or alias == router.db_for_write(Job):
            continue
        given = pool if isinstance(pool, dict) else {}
        largest = given.get("max_size") or given.get("min_size", 4)  # the pool's own defaults
        if largest < threads:
            found.append(
                Warning(
                    f"The connection pool of database {alias!r} gives at most {largest} connections, but a worker runs "
                    f"{threads} handlers at once: some would wait for others while their budgets run.",
                    hint=f"Set OPTIONS['pool'] = {{'max_size': {threads}}} or more, or lower DJANGO_JOBS['THREADS'].",
                    id="django_jobs.W206",
                )
            )
    return found


def check_listening(**_: object) -> list[CheckMessage]:
    """W209: notifications are wanted and cannot be heard."""
    from django_jobs.models import Job

    if _setting_problems():
        return []
    rules = get_settings()
    if connections[router.db_for_write(Job)].vendor != "postgresql":
        return []
    if not (rules.transaction_pooler and rules.notify and not rules.listen_dsn):
        return []
    return [
        Warning(
            "Workers reach PostgreSQL through a pooler in transaction mode, where notifications cannot be heard: idle "
            f"workers look for jobs every {rules.poll.total_seconds():.0f} s only.",
            hint=(
                "Set DJANGO_JOBS['LISTEN_DSN'] to a connection straight to the server; each worker keeps one open. Or "
                "set DJANGO_JOBS['NOTIFY'] = False if polling is enough."
            ),
            id="django_jobs.W209",
        )
    ]


def check_database_version(*, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """E207, E208: the database is older than what is supported."""
    from django_jobs.models import Job

    alias = router.db_for_write(Job)
    if alias not in (databases or ()):
        return []
    connection = connections[alias]
    if connection.vendor == "sqlite":
        version = _sqlite_version()
        if version < OLDEST_SQLITE:
            return [_too_old(f"SQLite {'.'.join(map(str, version))}", "3.37", "django_jobs.E207")]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version_num")
            major = int(cursor.fetchone()[0]) // 10_000
        if major < OLDEST_POSTGRESQL:
            return [_too_old(f"PostgreSQL {major}", str(OLDEST_POSTGRESQL), "django_jobs.E208")]
    return []


def _sqlite_version() -> tuple[int, ...]:
    import sqlite3

    return sqlite3.sqlite_version_info


def _too_old(what: str, oldest: str, identifier: str) -> Error:
    return Error(f"This is {what}; django_jobs needs {oldest} or later.", hint="Upgrade the database.", id=identifier)
