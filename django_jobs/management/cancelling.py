"""The verbs that cancel a job, and that say by hand whether a side effect was applied."""

from __future__ import annotations

from django.core.management.base import CommandError, CommandParser

from django_jobs.domain.judgement import Judgement
from django_jobs.management.deciding import add_job, add_operator, decide, job_of, usage
from django_jobs.management.verb import USAGE, Options, Verb, Write
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.lookup import EffectNotFoundError, find_effect
from django_jobs.operate.resolve import Resolve


def _cancel(options: Options, write: Write) -> int:
    return decide(Cancel(job_of(options).pk, using=options["database"]), options, write)


def _add_resolve(parser: CommandParser) -> None:
    parser.add_argument(
        "effect", metavar="EFFECT", help="The side effect's id, or its first 8 digits or more if no other begins so."
    )
    verdict = parser.add_mutually_exclusive_group(required=True)
    verdict.add_argument(
        "--applied", metavar="REF", default="", help="It was applied; REF is what the provider calls it."
    )
    verdict.add_argument(
        "--not-applied",
        dest="verdict",
        action="store_const",
        const=Judgement.NOT_APPLIED.value,
        help="It was not applied and cannot be any more; the next attempt sends it.",
    )
    verdict.add_argument(
        "--abandon",
        dest="verdict",
        action="store_const",
        const=Judgement.ABANDON.value,
        help="Nobody will find out; the job may go on without knowing.",
    )
    parser.add_argument("--evidence", default="", metavar="TEXT", help="Where that was seen, in 10 signs or more.")
    add_operator(parser)


def _resolve(options: Options, write: Write) -> int:
    using = options["database"]
    try:
        effect = find_effect(options["effect"], using=using)
    except EffectNotFoundError as error:
        raise CommandError(str(error), returncode=USAGE) from None

    def decision() -> Resolve:
        return Resolve(
            effect.pk,
            options["verdict"] or Judgement.APPLIED.value,
            provider_ref=options["applied"],
            evidence=options["evidence"],
            using=using,
        )

    return decide(usage(decision), options, write)


CANCEL_VERBS: tuple[Verb, ...] = (
    Verb(
        name="cancel",
        help="Cancel a job: a waiting one at once, a running one as soon as its handler hears it.",
        add_arguments=add_job,
        run=_cancel,
    ),
    Verb(
        name="resolve",
        help="Say by hand, with evidence, whether a side effect was applied.",
        add_arguments=_add_resolve,
        run=_resolve,
    ),
)
