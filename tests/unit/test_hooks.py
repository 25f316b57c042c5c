"""Loading what CONTEXT and MIDDLEWARE name: once, with errors that say what to mend, before anything runs."""

from __future__ import annotations

import threading
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_jobs import Middleware, checks, hooks
from django_jobs.exceptions import DefinitionError, HookError
from tests import carriers
from tests.carriers import LANGUAGE, Noting, Tenant
from tests.unit.test_checks import ids


def given(settings: Any, *, context: tuple[str, ...] = (), middleware: tuple[str, ...] = ()) -> None:
    """Name hooks, short for those of ``tests.carriers``."""
    named = {"CONTEXT": context, "MIDDLEWARE": middleware}
    full = {key: [path if "." in path else f"{carriers.HERE}.{path}" for path in paths] for key, paths in named.items()}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **full}


def test_nothing_is_loaded_without_settings() -> None:
    """Both lists are empty by default."""
    assert hooks.hooks() == hooks.Hooks()


def test_classes_are_made_once_and_objects_are_used(settings: Any) -> None:
    """All threads of a process share one object of each class; a path may lead to an object too."""
    given(settings, context=(LANGUAGE, "READY"), middleware=("Noting", "Forgetful"))
    found: list[hooks.Hooks] = []
    threads = [threading.Thread(target=lambda: found.append(hooks.hooks())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {id(one) for one in found} == {id(hooks.hooks())}
    assert [one.name for one in found[0].propagators] == ["language", "tenant"]
    assert found[0].propagators[1] is carriers.READY
    assert len(found[0].around_enqueue) == 1
    assert len(found[0].around_attempt) == 2


def test_other_settings_are_loaded_anew(settings: Any) -> None:
    """A test that overrides the settings gets its own hooks."""
    given(settings, context=("Tenant",))
    first = hooks.hooks()
    given(settings, context=(LANGUAGE,))

    assert [one.name for one in first.propagators] == ["tenant"]
    assert [one.name for one in hooks.hooks().propagators] == ["language"]


WRONG = [
    ("CONTEXT", "django_jobs.propagation.Languages", "Did you mean django_jobs.propagation.Language?"),
    ("CONTEXT", "no_such_module.Tenant", "cannot be imported: No module named 'no_such_module'"),
    ("CONTEXT", "tests.carriers.Noting", "is no propagator: it has no method capture()"),
    ("CONTEXT", "tests.carriers.Needy", "cannot be made: TypeError"),
    ("CONTEXT", "tests.carriers.Half", "Can't instantiate abstract class Half"),
    ("CONTEXT", "tests.carriers.Nameless", "name of the propagator tests.carriers.Nameless is empty"),
    ("MIDDLEWARE", "tests.carriers.Notting", "Did you mean tests.carriers.Noting?"),
    ("MIDDLEWARE", "tests.carriers.Nothing", "it has neither around_enqueue() nor around_attempt()"),
    ("MIDDLEWARE", "tests.carriers.seen", "is no middleware"),
]


@pytest.mark.parametrize(("setting", "path", "said"), WRONG)
def test_a_path_that_cannot_be_used_is_told(settings: Any, setting: str, path: str, said: str) -> None:
    """The check names the setting and the mend; an enqueue in spite of it gets the same words."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, setting: [path]}

    (found,) = checks.check_hooks()
    with pytest.raises(DefinitionError) as caught:
        hooks.hooks()

    assert ids([found]) == [{"CONTEXT": "django_jobs.E003", "MIDDLEWARE": "django_jobs.E004"}[setting]]
    assert found.msg == f"DJANGO_JOBS['{setting}']: {caught.value}"
    assert said in found.msg


def test_a_hook_that_enqueues_while_it_is_made_is_an_error(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for the hooks while they are loaded does not wait for itself."""
    monkeypatch.setattr(carriers.Nothing, "__init__", lambda self: hooks.hooks(), raising=False)
    given(settings, middleware=("Nothing",))
    found: list[BaseException] = []

    def load() -> None:
        try:
            hooks.hooks()
        except DefinitionError as error:
            found.append(error)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(timeout=10)

    assert "enqueues while it is imported or made" in str(found[0])


def test_every_wrong_path_is_told_at_once(settings: Any) -> None:
    """One run of the checks shows all of them; a name that two propagators have is one too."""
    given(settings, context=("Tenant", "Again", "Missing"), middleware=("Nothing", "Missing"))

    found = checks.check_hooks()

    assert [message.id for message in found] == ["django_jobs.E003"] * 2 + ["django_jobs.E004"] * 2
    assert "Two propagators have the name 'tenant'" in found[1].msg
    with pytest.raises(DefinitionError, match="cannot be imported"):
        hooks.hooks()
    given(settings, context=("Tenant", "Again"))
    with pytest.raises(DefinitionError, match="Two propagators"):
        hooks.hooks()


def test_sound_hooks_have_no_message(settings: Any) -> None:
    """What is shipped and what the tests use passes; settings that are wrong otherwise are left to their check."""
    given(settings, context=(LANGUAGE, "Tenant"), middleware=("Noting", "Hiding"))
    assert checks.check_hooks() == []
    settings.DJANGO_JOBS = {"THREADS": 0, "CONTEXT": ["no.such.Thing"]}
    assert checks.check_hooks() == []


@pytest.mark.parametrize("skips", [True, False])
def test_a_worker_with_a_wrong_hook_does_not_start(settings: Any, skips: bool) -> None:
    """It would fail each job: neither the checks nor their absence let it begin."""
    given(settings, middleware=("Nothing",))

    with pytest.raises((CommandError, SystemExit), match="has neither around_enqueue") as caught:
        call_command("runworker", "--drain", "--no-reload", skip_checks=skips)

    assert isinstance(caught.value, CommandError)
    assert not skips or caught.value.returncode == 2


def test_base_class_does_nothing() -> None:
    """A middleware overrides what it needs."""
    one = Middleware()

    with one.around_enqueue(None) as first, one.around_attempt(None) as second:  # type: ignore[arg-type]
        entered = (first, second)

    assert entered == (None, None)


def test_an_error_inside_goes_on(settings: Any) -> None:
    """What a context manager answers when it is left is not heeded; what it raises is."""

    class Swallowing:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> bool:
            return True

    def failing() -> None:
        with ExitStack() as stack:
            hooks.enter(stack, nullcontext(), of="one")
            hooks.enter(stack, Swallowing(), of="another")
            raise LookupError

    with pytest.raises(LookupError):
        failing()


def test_what_is_no_context_manager_is_refused() -> None:
    """The error names the hook."""
    with ExitStack() as stack, pytest.raises(HookError, match="a hook returned NoneType") as caught:
        hooks.enter(stack, None, of="a hook")

    assert caught.value.hook == "a hook"


def test_hooks_are_named_by_their_class() -> None:
    """Messages say which method of which class."""
    assert hooks.name_of(Noting().around_enqueue) == "around_enqueue() of tests.carriers.Noting"
    assert hooks.name_of(Tenant().restore) == "restore() of tests.carriers.Tenant"
