"""The table of named scenarios: where the test of each number is, read from the names of the tests."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.generators import markdown

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
NUMBERED = re.compile(r"test_(?=f\d\d_)((?:f\d\d_)+)")
RUNS = ("long", "slow", "pgbouncer", "browser")  # the first that a test has says in which run it is

MEANING = {
    1: "A worker is killed at each fault point, in one process, two, and four threads",
    2: "A worker is killed at random moments, many times",
    3: "SIGTERM, SIGINT, SIGHUP and SIGQUIT, at rest and at work, once and twice, and SIGKILL within the grace",
    4: "A worker is frozen past its lease and woken after another one took its job",
    5: "As F4, and its own row was pruned meanwhile",
    6: "The server ends a session before and after each statement",
    7: "The reply to a COMMIT is lost, or the COMMIT itself",
    8: "The network swallows everything for a while or for ever, or resets every connection",
    9: "The database is restarted under load, and in the middle of maintenance",
    10: "The standby takes over, in step with the primary or behind it",
    11: "A transaction pooler: session state, too few sessions, PAUSE and RESUME, sessions lost",
    12: "Clocks that are wrong or jump, of workers and of the database",
    13: "Fifty finishes of one attempt at one moment",
    14: "A handler longer than its lease: with progress, without, and with a value that does not grow",
    15: "C code holds the interpreter for longer than the lease",
    16: "Memory: a limit that raises MemoryError, and a process that is killed for it",
    17: "Handlers that end their process, raise what is no Exception, or never end, among many neighbours",
    18: "The disk of the database is full",
    19: "A queue is full",
    20: "A provider answers 429, with every form of Retry-After and with nonsense",
    21: "One message arrives fifty times at one moment",
    22: "A dispatcher dies between publishing and noting it, or outlasts its claim",
    23: "A receiver is down, slow, or takes a part",
    24: "A replay is asked for twice at one moment, and of a job that has moved on",
    25: "Pruning beside workers, and keys at the border of their life",
    26: "A rolling deploy: newer payloads, unknown types, code that cannot be imported",
    27: "A hundred workers start, a hundred thousand leases are over, notifications come in a storm",
    28: "The connection that listens dies silently",
    29: "The caller's transaction: nested, per request, without autocommit, rolled back to a savepoint",
    30: "A handler forks, or leaves a thread that acts after its end",
    31: "A job is cancelled at each fault point",
    32: "A stored row that no longer fits its handler",
    33: "After a success: the same key, the same message, and the old worker's finish once more",
}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A test of a scenario: its file from the root of the repository, its name, and the run that it is in."""

    file: str
    name: str
    run: str


def numbered() -> dict[int, list[Place]]:
    """Return the tests of each number that any test carries in its name; files are parsed, nothing is imported."""
    found: dict[int, list[Place]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and (match := NUMBERED.match(node.name)):
                place = Place(path.relative_to(ROOT).as_posix(), node.name, _run_of(node, tree, path))
                for number in re.findall(r"\d\d", match[1]):
                    found[int(number)].append(place)
    return dict(found)


def _run_of(test: ast.FunctionDef, tree: ast.Module, path: Path) -> str:
    marks = {name for decorator in test.decorator_list for name in _marks(decorator)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            marks.update(_marks(node.value))
    if path.stem in _slow_files(path.with_name("conftest.py")):
        marks.add("slow")
    return next((run for run in RUNS if run in marks), "")


def _marks(node: ast.AST) -> Iterator[str]:
    """Yield x of each ``pytest.mark.x``."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Attribute) and part.value.attr == "mark":
            yield part.attr


def _slow_files(conftest: Path) -> set[str]:
    """Return the files that a conftest leaves to the run of slow tests as a whole."""
    for node in ast.parse(conftest.read_text()).body if conftest.exists() else ():
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "SLOW_FILES" for target in node.targets):
            return {part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
    return set()


def scenario_table() -> str:
    """Return one row per number: what is done, in which files it is tried, and in which runs."""
    found = numbered()
    rows = (
        (f"F{number}", meaning, _files(found.get(number, [])), _runs(found.get(number, [])))
        for number, meaning in MEANING.items()
    )
    return markdown.table(("Number", "What is done", "Tests", "Runs"), rows)


def _files(places: list[Place]) -> str:
    return "<br>".join(f"`{file}`" for file in sorted({place.file for place in places})) or "none"


def _runs(places: list[Place]) -> str:
    return ", ".join(f"`-m {run}`" if run else "each run" for run in sorted({place.run for place in places})) or "none"
