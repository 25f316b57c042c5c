"""The parsed source files of the package, for the tests that read code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One Python file; ``name`` is its path from the root of the repository, ``room`` its first folder or module."""

    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def room(self) -> str:
        return self.path.relative_to(PACKAGE).with_suffix("").parts[0]


def sources(folder: Path = PACKAGE) -> list[Source]:
    """Parse every Python file below ``folder``; fail when there is none, so that no test passes on nothing."""
    paths = [path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts]
    assert paths, f"{folder} holds no Python file"
    return [Source(path=path, tree=ast.parse(path.read_text(), filename=str(path))) for path in paths]


def rooms_of(found: list[Source]) -> set[str]:
    """Return the rooms that these files belong to."""
    return {source.room for source in found}


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import; ``from a import b`` gives ``a`` and ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def called_name(call: ast.Call) -> str:
    """Return the last part of what is called: ``save`` for ``job.save()``."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def names_in(node: ast.AST) -> set[str]:
    """Return every name and attribute that an expression mentions."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }
