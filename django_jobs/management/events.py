"""The verbs about events: subscriptions, and decisions about deliveries."""

from __future__ import annotations

import uuid

from django.core.management.base import CommandError, CommandParser

from django_jobs.exceptions import DefinitionError, KeyFormatError
from django_jobs.management.deciding import add_operator, decide
from django_jobs.management.tables import one_line, table
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json
from django_jobs.operate.discard_delivery import DiscardDelivery
from django_jobs.operate.history import plain
from django_jobs.operate.redispatch import Redispatch
from django_jobs.operate.reroute import Reroute
from django_jobs.operate.wording import instant
from django_jobs.outbox.destinations import routes
from django_jobs.store.subscriptions import Route, route_of, subscriptions, sync


def _add_subscriptions(parser: CommandParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=["list", "sync"],
        help="list: what goes where. sync: make it what the code declares, ending what is declared no more.",
    )
    add_json(parser)


def _subscriptions(options: Options, write: Write) -> int:
    if options["action"] == "list":
        return _list(options, write)
    done = sync(routes(), using=options["database"])
    changes = [("added", done.added), ("renewed", done.renewed), ("ended", done.ended)]
    if options["json"]:
        write(as_json({what: [_route_text(route) for route in found] for what, found in changes}))
        return 0
    lines = [f"{what}: {_route_text(route)}" for what, found in changes for route in found]
    write("\n".join(map(one_line, lines)) or "Nothing to change: the rows say what the code declares.")
    return 0


def _route_text(route: Route) -> str:
    return f"{route.event_type}:{route.version} to {route.destination}"


def _list(options: Options, write: Write) -> int:
    rows, declared = subscriptions(using=options["database"]), set(routes())
    if options["json"]:
        for row in rows:
            names = ("event_type", "version", "destination", "active_from", "ended_at")
            told = {name: plain(getattr(row, name)) for name in names}
            write(as_json({**told, "declared": route_of(row) in declared}))
        return 0
    missing = sorted(declared - {route_of(row) for row in rows})
    cells = [
        (
            f"{row.event_type}:{row.version}",
            row.destination,
            instant(row.active_from),
            instant(row.ended_at),
            "" if route_of(row) in declared else "not declared in this code",
        )
        for row in rows
    ]
    cells += [(f"{route.event_type}:{route.version}", route.destination, "", "", "no row yet") for route in missing]
    write(table(("event", "destination", "since", "ended", "note"), cells) if cells else "Nothing is subscribed.")
    return 0


def _delivery_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        msg = f"{text!r} is no id of a delivery."
        raise CommandError(msg, returncode=USAGE) from None


def _add_delivery(parser: CommandParser) -> None:
    parser.add_argument("delivery", metavar="DELIVERY", help="The delivery's id.")
    add_operator(parser)


def _redispatch(options: Options, write: Write) -> int:
    return decide(Redispatch(_delivery_id(options["delivery"]), using=options["database"]), options, write)


def _discard(options: Options, write: Write) -> int:
    return decide(DiscardDelivery(_delivery_id(options["delivery"]), using=options["database"]), options, write)


def _add_reroute(parser: CommandParser) -> None:
    parser.add_argument("event_type", metavar="TYPE", help="The event type, for example shop.order.paid.")
    # Not --version: that is Django's.
    parser.add_argument("--event-version", type=int, default=1, metavar="N", help="Its version (default: 1).")
    add_operator(parser)


def _reroute(options: Options, write: Write) -> int:
    try:
        decision = Reroute(options["event_type"], version=options["event_version"], using=options["database"])
    except (DefinitionError, KeyFormatError) as error:
        raise CommandError(str(error), returncode=USAGE) from None
    return decide(decision, options, write)


EVENT_VERBS: tuple[Verb, ...] = (
    Verb(
        name="subscriptions",
        help="List which events go where, or make the stored routes what the code declares.",
        add_arguments=_add_subscriptions,
        run=_subscriptions,
    ),
    Verb(
        name="redispatch",
        help="Send the event of a delivery to its destination again; prints the plan, acts with --ack.",
        add_arguments=_add_delivery,
        run=_redispatch,
    ),
    Verb(
        name="discard-delivery",
        help="Give up a delivery that is dead or was tried in vain; prints the plan, acts with --ack.",
        add_arguments=_add_delivery,
        run=_discard,
    ),
    Verb(
        name="reroute",
        help="Send events that had no route to what is subscribed now; prints the plan, acts with --ack.",
        add_arguments=_add_reroute,
        run=_reroute,
    ),
)
