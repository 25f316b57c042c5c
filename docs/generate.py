"""Write the generated parts of the documentation: ``python docs/generate.py``; ``--check`` only says what is stale.

A page marks its generated part with ``<!-- generated: NAME -->`` and ``<!-- end of generated part -->``; what stands
between comes from the code, so that a page cannot tell something else than the package does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DIAGRAM = DOCS / "explanation" / "job-states.svg"
BLOCK = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end of generated part -->)", re.DOTALL)


def parts() -> dict[str, Callable[[], str]]:
    """Return each generated part by the name that a page calls it."""
    from docs.generators import (
        api,
        commands,
        contract,
        crashes,
        errors,
        metrics,
        permissions,
        scenarios,
        settings,
        states,
    )

    return {
        "settings": settings.table,
        "states": states.state_table,
        "transitions": states.transition_table,
        "dead-reasons": states.dead_reason_table,
        "errors": errors.error_list,
        "error-classes": errors.class_table,
        "http-proofs": errors.proof_table,
        "job-options": api.job_options,
        "using-options": api.using_options,
        "retry-policy": api.retry_policy,
        "effect-options": api.effect_options,
        "context": api.context_members,
        "public-names": api.public_names,
        "metrics": metrics.metric_tables,
        "recovery-words": contract.recovery_words,
        "permissions": permissions.permission_table,
        "contract": contract.contract_of_testproject,
        "crash-kinds": crashes.kind_table,
        "crash-matrix": crashes.matrix_table,
        "crash-gaps": crashes.not_applicable,
        "runworker-options": commands.runworker_options,
        "jobs-options": commands.jobs_options,
        "scenarios": scenarios.scenario_table,
    }


def generated() -> Iterator[tuple[Path, str]]:
    """Yield each page that has a generated part, and the diagram, with the text that it must have."""
    from docs.generators import diagram

    makers = parts()
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        if BLOCK.search(text):
            yield page, BLOCK.sub(lambda found: found[1] + "\n" + makers[found["name"]]() + "\n\n" + found[3], text)
    yield DIAGRAM, diagram.svg()


def stale() -> list[Path]:
    """Return the files whose text is not what the code says."""
    return [path for path, text in generated() if not path.exists() or path.read_text() != text]


def main(arguments: list[str]) -> int:
    """Write what is stale, or only name it."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    import django

    django.setup()
    wanted = dict(generated())
    found = stale()
    for path in found:
        print(f"stale: {path.relative_to(ROOT)}")
        if "--check" not in arguments:
            path.write_text(wanted[path])
    return int(bool(found) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
