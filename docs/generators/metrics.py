"""The table of metrics, from the table that the code reads."""

from __future__ import annotations

from django_jobs.observe.catalogue import SPECS, Source
from docs.generators import markdown

_WHERE = {
    Source.EVENTS: "### Counted where it happens",
    Source.WORKER: "### Of one worker",
    Source.DATABASE: "### Read from the database",
}


def metric_tables() -> str:
    """Return one table per source of metrics."""
    return "\n\n".join(f"{head}\n\n{_table(source)}" for source, head in _WHERE.items())


def _table(source: Source) -> str:
    rows = [
        (
            markdown.code(spec.full_name),
            str(spec.kind),
            ", ".join(map(markdown.code, spec.labels)) or "none",
            spec.help + (f" Values: {spec.values}." if spec.values else ""),
        )
        for spec in SPECS
        if spec.source is source
    ]
    return markdown.table(("Metric", "Kind", "Labels", "Meaning"), rows)
