"""``@job``: what a declaration means, and which ones are refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import AppRegistryNotReady
from django.test import override_settings

from django_jobs import RetryPolicy, job
from django_jobs.define import decorators, registry
from django_jobs.define.definition import DurableJob, type_hints
from django_jobs.exceptions import DefinitionError, KeyFormatError, PayloadError, UnknownJobTypeError

if TYPE_CHECKING:
    from somewhere import Nothing

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Forget what a test declared."""
    before = dict(registry._jobs)
    yield
    registry._jobs.clear()
    registry._jobs.update(before)


def handler(order_id: int, note: str = "") -> str:
    """Return what it got."""
    return f"{order_id}{note}"


def in_shop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function belong to an installed app."""
    function.__module__ = "testproject.shop.jobs"
    return function


def test_bare_decorator_takes_every_default() -> None:
    """The type is app label and function name; the handler is atomic, unkeyed, and leased for budget plus cleanup."""

    @job
    @in_shop
    def declared_bare(order_id: int) -> None:
        """Send."""

    definition = declared_bare.definition
    options = definition.options
    assert definition.job_type == "shop.declared_bare"
    assert (options.version, options.queue_name, options.priority, options.key) == (1, "default", 0, None)
    assert (options.key_scope, options.key_ttl, options.on_duplicate) == (
        "shop.declared_bare",
        timedelta(days=7),
        "return",
    )
    assert (options.subject, options.owner, options.useful_for, options.tenant) == ("", "", None, "")
    assert (definition.aliases, definition.takes_context, definition.atomic) == ((), False, True)
    assert definition.terms.lease == timedelta(seconds=70)
    assert definition.terms.max_runtime == timedelta(seconds=1200)
    assert definition.retry == RetryPolicy()
    assert registry.get("shop.declared_bare") is declared_bare


def test_empty_parentheses_mean_the_same() -> None:
    """``@job()`` is ``@job``."""
    declared = job()(in_shop(lambda_free()))

    assert declared.definition.job_type == "shop.inner"


def lambda_free() -> Callable[..., None]:
    """Return a fresh function."""

    def inner() -> None:
        """Do nothing."""

    return inner


def test_full_declaration_is_kept() -> None:
    """Everything that was declared can be read back."""
    policy = RetryPolicy(permanent=(LookupError,))

    @job(
        type="tests.full",
        version=3,
        aliases=["tests.pay"],
        queue_name="payments",
        priority=10,
        key="order:{order_id}",
        key_scope="tests.orders",
        key_ttl=timedelta(days=1),
        on_duplicate="reject",
        subject="order:{order_id}",
        owner="billing",
        budget=30 * SECOND,
        cleanup=5 * SECOND,
        max_runtime=300 * SECOND,
        retry=policy,
        useful_for=timedelta(hours=24),
        takes_context=True,
    )
    def charge(context: Any, order_id: int) -> None:
        """Charge."""

    definition = charge.definition
    assert definition.names == ("tests.full", "tests.pay")
    assert definition.options.key_scope == "tests.orders"
    assert (definition.terms.budget, definition.terms.cleanup, definition.terms.max_runtime) == (
        30 * SECOND,
        5 * SECOND,
        300 * SECOND,
    )
    assert (definition.retry, definition.takes_context, definition.atomic) == (policy, True, False)
    assert list(definition.signature.parameters) == ["order_id"]
    assert registry.get("tests.pay") is charge
    assert dict(registry.definitions())["tests.pay"] is definition


def test_settings_give_the_defaults() -> None:
    """A project's own times hold for every type that names none."""
    with override_settings(DJANGO_JOBS={"BUDGET": 5 * SECOND, "CLEANUP": 2 * SECOND, "KEY_TTL": 9 * SECOND}):
        declared = job(type="tests.short")(lambda_free())

    assert declared.definition.terms.lease == 7 * SECOND
    assert declared.options.key_ttl == 9 * SECOND


def test_plain_handler_may_opt_out_of_the_transaction() -> None:
    """``atomic=False`` is for long handlers."""
    assert job(type="tests.long", atomic=False)(lambda_free()).definition.atomic is False


def test_declared_job_is_still_the_function() -> None:
    """Calling it runs the handler here and now; it keeps its name and documentation."""
    declared = job(type="tests.call")(handler)

    assert declared(7, note="!") == "7!"
    assert (declared.__name__, declared.__doc__) == ("handler", "Return what it got.")
    assert repr(declared) == "<job tests.call>"


def test_oldest_name_is_the_default_scope_of_keys() -> None:
    """A rename keeps the keys: the last alias is the first name that the type had."""
    assert job(type="tests.c", aliases=("tests.b", "tests.a"))(handler).options.key_scope == "tests.a"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown option": ({"colour": "red"}, "no option 'colour'"),
    "option of a later version": ({"debounce": 5}, "no option 'debounce' in this version"),
    "version 0": ({"version": 0}, "version must be"),
    "version True": ({"version": True}, "version must be"),
    "version text": ({"version": "1"}, "version must be"),
    "version beyond the column": ({"version": 2**31}, "version must be a whole number from 1 to 2147483647"),
    "version made of a date": ({"version": 202612010930}, "version must be"),
    "on_duplicate": ({"on_duplicate": "replace"}, "on_duplicate must be"),
    "on_duplicate without a hash": ({"on_duplicate": []}, "on_duplicate must be"),
    "on_duplicate None": ({"on_duplicate": None}, "on_duplicate must be"),
    "serial_on_dead": ({"serial_on_dead": "stop"}, "serial_on_dead must be"),
    "serial_on_dead without a hash": ({"serial_on_dead": []}, "serial_on_dead must be"),
    "upcasters list": ({"upcasters": []}, "upcasters must be a dict"),
    "priority": ({"priority": 1000}, "priority must be"),
    "key_ttl zero": ({"key_ttl": timedelta(0)}, "key_ttl must be"),
    "key_ttl number": ({"key_ttl": 60}, "key_ttl must be"),
    "key_ttl of centuries": ({"key_ttl": timedelta(days=40000)}, "key_ttl must be"),
    "useful_for zero": ({"useful_for": timedelta(0)}, "useful_for must be"),
    "useful_for number": ({"useful_for": 60}, "useful_for must be"),
    "budget zero": ({"budget": timedelta(0)}, "budget"),
    "budget number": ({"budget": 60}, "budget"),
    "max_runtime below lease": ({"max_runtime": SECOND}, "max_runtime"),
    "retry": ({"retry": 3}, "retry must be a RetryPolicy"),
    "aliases text": ({"aliases": "shop.pay"}, "aliases must be a tuple of names"),
    "aliases None": ({"aliases": None}, "aliases must be a tuple of names"),
    "takes_context": ({"takes_context": "yes"}, "takes_context must be True or False"),
    "atomic": ({"atomic": 1}, "atomic must be True or False"),
    "soft_timeout": ({"soft_timeout": "yes"}, "soft_timeout must be True or False"),
    "soft_timeout without cleanup": ({"soft_timeout": True, "cleanup": SECOND}, "soft_timeout needs a cleanup of"),
    "context and atomic": ({"takes_context": True, "atomic": True}, "atomic=True cannot hold"),
    "context not first": ({"takes_context": True}, "first parameter must be named 'context'"),
    "key of no parameter": ({"key": "order:{colour}"}, "uses 'colour', which is no parameter"),
    "subject of no parameter": ({"subject": "order:{colour}"}, "uses 'colour', which is no parameter"),
    "key with an expression": ({"key": "order:{order_id.pk}"}, "plain argument name"),
    "key without separator": ({"key": "{order_id}{note}"}, "no separator"),
    "key with an open brace": ({"key": "order:{order_id"}, "cannot be read"),
    "type empty": ({"type": ""}, "job type is empty"),
    "type number": ({"type": 5}, "job type is of type int"),
    "type not ASCII": ({"type": "shop.zählen"}, "printable ASCII"),
    "type too long": ({"type": "t" * 201}, "more than 200"),
    "alias empty": ({"aliases": ("",)}, "alias is empty"),
    "queue empty": ({"queue_name": ""}, "queue_name is empty"),
    "owner not ASCII": ({"owner": "Jürgen"}, "owner"),
    "key empty": ({"key": ""}, "key is empty"),
    "key_scope empty": ({"key_scope": "", "key": "a"}, "key_scope is empty"),
    "key_scope number": ({"key_scope": 5}, "key_scope is of type int"),
}


@pytest.mark.parametrize(("declared", "expected"), [({}, True), ({"soft_timeout": False}, False)])
def test_setting_asks_for_soft_time_outs_where_the_type_says_nothing(declared: dict[str, Any], expected: bool) -> None:
    """A type that declares it not is left alone, whatever its cleanup; without the setting so are all."""
    assert job(type="tests.silent")(lambda_free()).definition.soft_timeout is False
    with override_settings(DJANGO_JOBS={"SOFT_TIMEOUT": True}):
        assert job(type="tests.soft", **declared)(lambda_free()).definition.soft_timeout is expected
        assert job(type="tests.short", cleanup=SECOND, soft_timeout=False)(lambda_free())


@pytest.mark.parametrize("name", REFUSED)
def test_declaration_that_cannot_work_is_refused(name: str) -> None:
    """At import time, with a message that names the option."""
    declared, match = REFUSED[name]

    with pytest.raises((DefinitionError, KeyFormatError), match=match):
        job(**{"type": "tests.refused", **declared})(handler)
    assert registry.find("tests.refused") is None


def positional_only(order_id: int, /) -> None:
    """Take what has no name in a payload."""


def variable(*orders: int) -> None:
    """Take what has no name in a payload."""


def generator() -> Iterator[int]:
    """Yield."""
    yield 1


async def async_generator() -> Any:
    """Yield in a loop."""
    yield 1


FUNCTIONS: dict[str, tuple[Any, str]] = {
    "positional only": (positional_only, "'order_id' has no name"),
    "variable": (variable, "'orders' has no name"),
    "generator": (generator, "a generator function cannot be a handler"),
    "async generator": (async_generator, "a generator function cannot be a handler"),
    "class": (DurableJob, "plain function"),
    "builtin": (len, "plain function"),
    "partial": (functools.partial(handler, 1), "plain function"),
    "number": (5, "plain function"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_that_cannot_be_a_handler_is_refused(name: str) -> None:
    """Arguments are stored by name, and a handler is an ordinary function."""
    function, match = FUNCTIONS[name]

    with pytest.raises(DefinitionError, match=match):
        job(type="tests.refused")(function)


@pytest.mark.parametrize("name", ["class", "builtin", "number"])
def test_bare_decorator_refuses_what_is_no_function(name: str) -> None:
    """Also where the default name would be asked first."""
    with pytest.raises(DefinitionError, match="plain function"):
        job(FUNCTIONS[name][0])


def test_context_without_parameters_is_refused() -> None:
    """A handler that takes a context has a place for it."""
    with pytest.raises(DefinitionError, match="named 'context'"):
        job(type="tests.refused", takes_context=True)(lambda_free())


def test_module_of_no_app_needs_a_type() -> None:
    """There is no app label to name the type after."""
    with pytest.raises(DefinitionError, match="belongs to no installed app"):
        job(lambda_free())


def test_import_before_the_apps_needs_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which app a module belongs to is not known yet."""

    def not_ready(name: str) -> None:
        raise AppRegistryNotReady

    monkeypatch.setattr(decorators.apps, "get_containing_app_config", not_ready)
    with pytest.raises(DefinitionError, match="before the apps were loaded"):
        job(in_shop(lambda_free()))


def test_two_handlers_cannot_share_a_name() -> None:
    """The error names both places; the first one stays registered."""
    first = job(type="tests.twice")(handler)

    with pytest.raises(DefinitionError, match=r"'tests.twice' is declared twice.*handler.*inner"):
        job(type="tests.other", aliases=("tests.twice",))(lambda_free())
    assert registry.get("tests.twice") is first
    assert registry.find("tests.other") is None


def test_module_that_is_loaded_again_replaces_its_own() -> None:
    """A development server reloads modules; that is no second handler."""
    job(type="tests.again")(handler)
    second = job(type="tests.again")(handler)

    assert registry.get("tests.again") is second


def test_unknown_type_has_an_error_of_its_own() -> None:
    """Nothing is imported from a stored name."""
    with pytest.raises(UnknownJobTypeError, match=r"'os.system'"):
        registry.get("os.system")
    assert registry.find("os.system") is None


def test_unregister_forgets_every_name() -> None:
    """Aliases go with the type; an unknown name is no error."""
    job(type="tests.gone", aliases=("tests.older",))(handler)
    registry.unregister("tests.gone")
    registry.unregister("tests.gone")

    assert registry.find("tests.older") is None


def test_arguments_are_bound_with_defaults_and_extras() -> None:
    """What is stored is complete: a default that changes later does not change stored jobs."""

    def open_ended(order_id: int, note: str = "x", **extra: Any) -> None:
        """Take anything."""

    definition = job(type="tests.open", key="{order_id}:{colour}")(open_ended).definition

    assert definition.bind((1,), {"colour": "red"}) == {"order_id": 1, "note": "x", "colour": "red"}
    assert definition.bind((1,), {"extra": 5}) == {"order_id": 1, "note": "x", "extra": 5}


def test_stored_arguments_are_restored_by_annotation() -> None:
    """Annotated values come back as declared, others as JSON has them; what does not fit names the parameter."""

    def typed(amount: Decimal, other, wait: timedelta | None = None) -> None:  # type: ignore[no-untyped-def]
        """Take a decimal."""

    definition = job(type="tests.typed")(typed).definition

    assert definition.restore({"amount": "1.50", "other": "1.50"}) == {
        "amount": Decimal("1.50"),
        "other": "1.50",
        "wait": None,
    }
    with pytest.raises(PayloadError, match=r"'amount' does not fit tests.typed"):
        definition.restore({"amount": "much", "other": 1})
    with pytest.raises(PayloadError, match="missing a required argument"):
        definition.restore({"amount": "1"})


def test_annotation_that_names_nothing_is_told() -> None:
    """A worker dead-letters such a job with the reason, instead of failing to record anything."""

    def lost(order: Nothing) -> None:
        """Take a type that exists only for the type checker."""

    definition = job(type="tests.lost")(lost).definition

    with pytest.raises(DefinitionError, match="cannot be resolved"):
        type_hints(lost)
    with pytest.raises(PayloadError, match="cannot be resolved"):
        definition.restore({"order": 1})


def test_annotation_of_the_result_does_not_matter() -> None:
    """Results are not restored, so their type need not exist at run time."""

    def found(order: int) -> Nothing:
        """Return a type that exists only for the type checker."""

    assert type_hints(found) == {"order": int}


def test_code_version_is_configured_or_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting wins, then the environment, then the handler's source; byte code stands in for lost source."""
    definition = job(type="tests.version")(handler).definition
    source = definition.code_version()
    assert source.startswith("source:")

    monkeypatch.setenv("DJANGO_JOBS_CODE_VERSION", "build-7")
    assert definition.code_version() == "build-7"
    monkeypatch.setenv("DJANGO_JOBS_CODE_VERSION", "build-\udcff")
    assert definition.code_version() == "build-\\udcff", "bytes that are no UTF-8 can be stored nowhere"
    with override_settings(DJANGO_JOBS={"CODE_VERSION": "v1.2"}):
        assert definition.code_version() == "v1.2"
    monkeypatch.delenv("DJANGO_JOBS_CODE_VERSION")

    namespace: dict[str, Any] = {}
    exec("def made(order_id): return order_id", namespace)
    made = job(type="tests.made")(namespace["made"]).definition.code_version()
    assert made.startswith("source:")
    assert made != source


def test_largest_version_is_accepted() -> None:
    """The column holds it."""
    assert job(type="tests.newest", version=2**31 - 1)(handler).options.version == 2**31 - 1


def test_context_is_no_name_of_an_argument() -> None:
    """A handler that takes its context and any other name could never be called with a second context."""

    def open_ended(context: Any, **rest: Any) -> None:
        """Take anything."""

    definition = job(type="tests.open", takes_context=True)(open_ended).definition
    with pytest.raises(PayloadError, match="no argument of it can be called 'context'"):
        definition.bind((), {"context": 5})
    with pytest.raises(PayloadError, match="no argument of it can be called 'context'"):
        definition.restore({"context": 5})
    assert definition.bind((), {"content": 5}) == {"content": 5}
