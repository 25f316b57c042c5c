"""The result as text: figures, evidence, verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from testproject.demo.evidence import Evidence
from testproject.demo.figures import Figures

LABEL = 28
WIDTH = 110
INDENT = " " * 12


def table(figures: Figures) -> list[str]:
    """Return the lines of the table."""
    rows = [
        ("orders", f"{sum(figures.orders.values())} ({_parts(figures.orders)})"),
        ("jobs by state", _parts(figures.jobs)),
        ("attempts", f"{sum(figures.attempts.values())} ({_parts(figures.attempts)})"),
        ("losses", f"{sum(figures.losses.values())} ({_parts(figures.losses)})"),
        ("charges applied per order", _charges(figures)),
        ("reconciled effects", str(figures.reconciled)),
        ("resent with the same key", str(figures.resent)),
        ("duplicates answered", str(figures.duplicates)),
        ("conflicts refused", str(figures.conflicts)),
        ("stale writes refused", str(figures.refused)),
        ("events published", str(figures.events)),
        ("webhooks to the partner", f"{figures.webhooks} ({figures.repeated} repeated)"),
        ("receipts mailed", str(figures.mails)),
        ("charges taken back", str(figures.refunds)),
        ("decisions of a person", _parts(figures.decisions)),
        ("needs a human", str(figures.human)),
    ]
    width = max(len(value) for _, value in rows)
    rule = f"+{'-' * (LABEL + 2)}+{'-' * (width + 2)}+"
    return [rule, *(f"| {label:<{LABEL}} | {value:<{width}} |" for label, value in rows), rule]


def evidence_list(evidence: Iterable[Evidence]) -> list[str]:
    """Return a line per fault that says whether it fired, and below it the proof."""
    lines = []
    for item in evidence:
        lines.append(f"fired: {'yes' if item.fired else 'no':<3}  {item.fault}: {item.title}")
        lines += textwrap.wrap(
            item.proof, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False
        )
    return lines


def _parts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items())) or "none"


def _charges(figures: Figures) -> str:
    parts = [
        f"{times} for {orders} {status}" for (status, times), orders in sorted(figures.charges.items(), reverse=True)
    ]
    return ", ".join(parts) or "none"
