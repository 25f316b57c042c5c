"""Every public name is documented."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import ROOT, Source, sources

# Django documents what these are for; ``Meta`` has nothing to say.
HOOKS = {"Meta", "add_arguments", "deconstruct", "handle", "ready"}
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def undocumented(source: Source) -> Iterator[str]:
    """Yield place and name of each public module, class, function and method without a docstring."""
    if source.path.name != "__init__.py" or source.tree.body:
        if ast.get_docstring(source.tree) is None:
            yield source.name
        yield from _undocumented_in(source.tree, source.name)


def _undocumented_in(parent: ast.AST, place: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, Documented) or node.name.startswith("_") or node.name in HOOKS or _is_overload(node):
            continue
        if ast.get_docstring(node) is None:
            yield f"{place}:{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_in(node, place)


def _is_overload(node: Documented) -> bool:
    names = {part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in node.decorator_list}
    return bool(names & {"overload", "override", "setter"})


def test_every_public_name_has_a_docstring() -> None:
    """Modules, classes, functions and methods without an underscore say what they are for."""
    found = [name for source in sources() if source.room != "migrations" for name in undocumented(source)]

    assert found == []


def test_every_room_says_what_it_is_for() -> None:
    """The docstring of a room begins with "This room", or with one line and then so."""
    packages = [source for source in sources() if source.path.name == "__init__.py" and source.room != "migrations"]
    rooms = [source for source in packages if source.path.parent.parent == ROOT / "django_jobs"]
    silent = [source.name for source in rooms if "This room" not in (ast.get_docstring(source.tree) or "")]

    assert rooms
    assert silent == []


def test_every_test_states_the_expected_behaviour() -> None:
    """A test begins with a sentence that says what must happen."""
    silent = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in sources(ROOT / "tests")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]

    assert silent == []
