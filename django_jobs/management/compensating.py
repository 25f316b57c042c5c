"""The verb that takes an applied side effect back."""

from __future__ import annotations

from django.core.management.base import CommandError, CommandParser

from django_jobs.management.deciding import add_operator, decide
from django_jobs.management.verb import USAGE, Options, Verb, Write
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.lookup import EffectNotFoundError, find_effect


def _add_compensate(parser: CommandParser) -> None:
    parser.add_argument(
        "effect", metavar="EFFECT", help="The side effect's id, or its first 8 digits or more if no other begins so."
    )
    parser.add_argument(
        "--by-hand",
        action="store_true",
        help="Send nothing: it was taken back by hand, or stays on purpose; --reason says what was done.",
    )
    add_operator(parser)


def _compensate(options: Options, write: Write) -> int:
    try:
        effect = find_effect(options["effect"], using=options["database"])
    except EffectNotFoundError as error:
        raise CommandError(str(error), returncode=USAGE) from None
    decision = Compensate(effect.pk, using=options["database"], by_hand=options["by_hand"])
    return decide(decision, options, write)


COMPENSATE_VERBS: tuple[Verb, ...] = (
    Verb(
        name="compensate",
        help="Take an applied side effect back by a new job, as its code declares, or record that it was done by hand.",
        add_arguments=_add_compensate,
        run=_compensate,
    ),
)
