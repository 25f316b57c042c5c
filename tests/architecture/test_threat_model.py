"""The threat model's list: every number has its tests, which exist, or says why it does not apply."""

from __future__ import annotations

import ast
import re

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
NUMBERS = [f"S{number}" for number in range(1, 23)]
ROW = re.compile(r"^\| (S\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_number_of_the_security_list_has_its_row() -> None:
    """S1 to S22 stand in the table once, in order."""
    assert [row[0] for row in ROW.findall(PAGE.read_text())] == NUMBERS


def test_each_number_has_a_test_or_a_reason() -> None:
    """A row without a test says that the risk does not apply, and every test that is named exists."""
    for number, _, rule, tests in ROW.findall(PAGE.read_text()):
        named = NAMED.findall(tests)
        assert named or rule.startswith("does not apply"), number
        for path, function in named:
            tree = ast.parse((ROOT / path).read_text())
            functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert not function or function in functions, f"{number}: {path}::{function}"


def test_every_numbered_test_stands_in_its_row() -> None:
    """What a test of the security rooms is named for is what its row says, or its whole file is named there."""
    rows = {number: tests for number, _, _, tests in ROW.findall(PAGE.read_text())}
    for file in sorted((ROOT / "tests" / "security").glob("test_*.py")):
        path = file.relative_to(ROOT).as_posix()
        for number, name in re.findall(r"^def (?=test_s(\d\d)_)(\w+)", file.read_text(), re.MULTILINE):
            row = rows[f"S{int(number)}"]
            assert f"{path}::{name}" in row or f"`{path}`" in row, name
