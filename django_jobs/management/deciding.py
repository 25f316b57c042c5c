"""How a verb decides: without ``--ack`` it prints the plan and its digest, with it it acts.

Exit codes: 0 done, 1 refused, 2 usage, 4 changed since it was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError, CommandParser

from django_jobs.exceptions import ActionChangedError, ActionRefusedError, OperatorError, RowBusyError
from django_jobs.management.tables import one_line
from django_jobs.management.verb import USAGE, Options, Write, add_json, as_json
from django_jobs.models import Job
from django_jobs.operate.action import REASON_CODES, Decision, Done, Operator, Plan
from django_jobs.operate.listing import parse_since, parse_span
from django_jobs.operate.lookup import JobNotFoundError, find_job

REFUSED = 1
CHANGED = 4


def add_operator(parser: CommandParser) -> None:
    """Offer who decides, for whom and why, ``--ack`` and ``--json``."""
    parser.add_argument("--as", dest="actor", metavar="USER", default="", help="Who decides this.")
    parser.add_argument("--owner", default="", metavar="NAME", help="The person or team that answers for the outcome.")
    parser.add_argument("--reason", default="", help="Why, in 10 signs or more; it is kept in the audit.")
    parser.add_argument(
        "--reason-code", choices=sorted(REASON_CODES), default="other", help="What kind of reason (default: other)."
    )
    parser.add_argument("--ticket", default="", help="A reference, if there is one.")
    parser.add_argument(
        "--ack",
        default="",
        metavar="DIGEST",
        help="Act, if the plan is still the one with this digest; without it the plan is printed and nothing happens.",
    )
    add_json(parser)


def decide(decision: Decision, options: Options, write: Write) -> int:
    """Print the plan of a decision, or carry it out when ``--ack`` repeats the plan's digest; return the exit code.

    Args:
        decision: What is decided.
        options: The options of :func:`add_operator`, and ``database``.
        write: Writes a line.

    Raises:
        CommandError: The object does not exist, or ``--ack`` was given without who, for whom and why (code 2).
    """
    try:
        if not options["ack"]:
            return _show(decision.plan(), options, write)
        return _done(decision.submit(operator_of(options), digest=options["ack"]), options, write)
    except (LookupError, OperatorError) as error:
        raise CommandError(str(error), returncode=USAGE) from None
    except ActionChangedError as error:
        return _not_done("changed", error, options, write, code=CHANGED)
    except ActionRefusedError as error:
        return _not_done("refused", error, options, write, code=REFUSED)
    except RowBusyError as error:
        return _not_done("busy", error, options, write, code=REFUSED)
    except PermissionDenied as error:
        return _not_done("denied", error, options, write, code=REFUSED)


def operator_of(options: Options) -> Operator:
    """Return who decides, as the options say.

    Raises:
        OperatorError: Somebody or something is missing; the message says which.
    """
    return Operator(
        actor=options["actor"],
        owner=options["owner"],
        reason=options["reason"],
        reason_code=options["reason_code"],
        ticket=options["ticket"],
    )


def _show(plan: Plan, options: Options, write: Write) -> int:
    outcome = "refused" if plan.refused else "planned"
    if options["json"]:
        write(as_json({"outcome": outcome, "message": plan.refused, **plan_dict(plan)}))
    else:
        write("\n".join(map(one_line, plan_lines(plan))))
        write("" if plan.refused else "Nothing was done. To do it, repeat the command with the line above.")
    return REFUSED if plan.refused else 0


def _done(done: Done, options: Options, write: Write) -> int:
    if options["json"]:
        told = {"outcome": "done", "message": done.message, "action": str(done.action.pk), **done.details}
        write(as_json(told))
    else:
        write(one_line(done.message))
    return 0


def _not_done(outcome: str, error: Exception, options: Options, write: Write, *, code: int) -> int:
    plan = getattr(error, "plan", None)
    if options["json"]:
        told: dict[str, Any] = {"outcome": outcome, "message": str(error)}
        write(as_json({**told, **(plan_dict(plan) if isinstance(plan, Plan) else {})}))
        return code
    write(one_line(error))
    if isinstance(plan, Plan) and not plan.refused:
        write("\n".join(map(one_line, plan_lines(plan))))
    return code


def plan_dict(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON values."""
    return {
        "action": plan.action,
        "title": plan.title,
        "refused": plan.refused,
        "digest": plan.digest,
        "facts": dict(plan.facts),
        "lines": list(plan.lines),
        "acknowledge": [
            {"name": item.name, "label": item.label, "reason_code": item.reason_code} for item in plan.acknowledge
        ],
    }


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a plan for people."""
    yield plan.title
    yield from (f"  {line}" for line in plan.lines)
    if plan.refused:
        yield f"REFUSED: {plan.refused}"
        return
    if plan.acknowledge:
        yield "By repeating the digest you say yes to:"
        for item in plan.acknowledge:
            only = f" (only with --reason-code {item.reason_code})" if item.reason_code else ""
            yield f"  - {item.label}{only}"
    yield f"--ack {plan.digest}"


def add_job(parser: CommandParser) -> None:
    """Ask for one job, and for who decides."""
    parser.add_argument("job", metavar="JOB", help="The job's id, or its first 8 digits or more if no other begins so.")
    add_operator(parser)


def job_of(options: Options) -> Job:
    """Return the job that the options name.

    Raises:
        CommandError: There is none, or more than one (code 2).
    """
    try:
        return find_job(options["job"], using=options["database"])
    except JobNotFoundError as error:
        raise CommandError(str(error), returncode=USAGE) from None


def usage(make: Callable[[], Decision]) -> Decision:
    """Make a decision; what it refuses about its options is a usage error.

    Raises:
        CommandError: An option cannot work (code 2).
    """
    try:
        return make()
    except (OperatorError, ValueError, OverflowError) as error:
        raise CommandError(str(error), returncode=USAGE) from None


def start_of(options: Options) -> datetime | timedelta | None:
    """Return when something may start: ``--run-after`` is an instant, ``--in`` a span.

    Raises:
        ValueError: It is none.
    """
    if options["span"]:
        return parse_span(options["span"])
    return parse_since(options["run_after"], using=options["database"]) if options["run_after"] else None
