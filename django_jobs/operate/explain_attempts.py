"""Who claimed a job, for how long, and how each attempt ended."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs.domain.redaction import Redactor
from django_jobs.domain.states import Alone, AttemptOutcome, LossCause
from django_jobs.masking import redactor
from django_jobs.models import Attempt
from django_jobs.operate.history import JobHistory
from django_jobs.operate.wording import LOSS, counted, duration, exit_text, instant

_FIRST, _LAST = 3, 15
_MESSAGE_SHOWN = 200
_COMPANY = {Alone.CHILD: ", alone in its process", Alone.WORKER: ", alone on its worker"}


def attempt_lines(history: JobHistory) -> Iterator[str]:
    """Yield one line per attempt; of very many, the first and the last ones."""
    attempts = history.attempts
    if not attempts:
        yield "Nobody has claimed it yet."
        return
    mask = redactor()
    shown = attempts if len(attempts) <= _FIRST + _LAST else (*attempts[:_FIRST], *attempts[-_LAST:])
    for place, attempt in enumerate(shown):
        if len(shown) < len(attempts) and place == _FIRST:
            yield f"… {counted(len(attempts) - len(shown), 'attempt')} left out; see 'manage.py jobs show'."
        yield _attempt(attempt, history, mask)


def _attempt(attempt: Attempt, history: JobHistory, mask: Redactor) -> str:
    worker = attempt.worker_name or str(attempt.worker_id)
    code = f", code {attempt.code_version}" if attempt.code_version else ""
    replay = f" (generation {attempt.generation})" if history.job.generation > 1 else ""
    who = (
        f"Attempt {attempt.number}{replay}: worker {worker}, child {attempt.worker_child}{code}"
        f"{_COMPANY.get(Alone(attempt.alone), '')}; claimed at {instant(attempt.started_at)}"
    )
    return f"{who}; {ending(attempt, history, mask)}{_late(attempt)}"


def ending(attempt: Attempt, history: JobHistory, mask: Redactor) -> str:
    """Say how an attempt ended and what it left; a loss is told as what it is."""
    if attempt.finished_at is None:
        return f"still running after {duration(history.read_at - attempt.started_at)}."
    took = duration(attempt.finished_at - attempt.started_at)
    over = ", past its budget" if attempt.over_budget else ""
    if attempt.outcome == AttemptOutcome.LOST:
        return f"lost after {took}: {LOSS} ({loss_text(attempt)})."
    if attempt.outcome == AttemptOutcome.FAILED:
        return f"failed after {took}{over} ({attempt.error_class}): {attempt.error_type}{_quoted(attempt, mask)}"
    said = _quoted(attempt, mask)
    return f"{attempt.outcome} after {took}{over}{said or '.'}"


def loss_text(attempt: Attempt) -> str:
    """Say what proved a loss."""
    if attempt.loss_cause == LossCause.EXIT:
        return exit_text(attempt.exit_status)
    if attempt.loss_cause == LossCause.SILENT:
        return "its worker stopped saying that it lives"
    if attempt.loss_cause == LossCause.ENDED:
        return "its worker ended the process on purpose and could not give the job back"
    return "its lease was over and it had not finished"


def _quoted(attempt: Attempt, mask: Redactor) -> str:
    text = " ".join(mask.text(attempt.message).split())
    if not text:
        return "."
    return f": {text[:_MESSAGE_SHOWN]}…" if len(text) > _MESSAGE_SHOWN else f": {text}"


def _late(attempt: Attempt) -> str:
    if not attempt.refused_count:
        return ""
    last = f"the last, '{attempt.refused_operation}', at {instant(attempt.refused_at)}"
    return f" {counted(attempt.refused_count, 'late write')} of it refused ({last}); nothing of that was accepted."
