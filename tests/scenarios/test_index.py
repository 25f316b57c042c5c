"""Every named scenario has a test that carries its number, and the page that lists them tells where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import generate
from docs.generators import scenarios

PAGE = generate.DOCS / "explanation" / "what-is-broken-on-purpose.md"


def test_every_number_has_a_test() -> None:
    """F1 to F33: at least one test in this repository begins with ``test_fNN_``, and none has a number beyond."""
    found = scenarios.numbered()

    assert list(scenarios.MEANING) == list(range(1, 34))
    assert [f"F{number}" for number in scenarios.MEANING if number not in found] == []
    assert sorted(set(found) - set(scenarios.MEANING)) == []


def test_page_tells_where_each_number_is_tried() -> None:
    """The table has a row per number, with every file that holds a test of it and no other, and the runs it is in."""
    rows = dict(re.findall(r"^\| F(\d+) \| (.*) \|$", PAGE.read_text(), flags=re.MULTILINE))

    assert [int(number) for number in rows] == list(scenarios.MEANING)
    found = scenarios.numbered()
    for number, row in rows.items():
        places = found.get(int(number), [])
        assert set(re.findall(r"`(tests/[\w/.]+)`", row)) == {place.file for place in places}, f"F{number}"
        assert set(re.findall(r"-m (\w+)", row)) == {place.run for place in places if place.run}, f"F{number}"


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("def test_f01_x(): ...", ""),
        ("@pytest.mark.slow\ndef test_f01_x(): ...", "slow"),
        ("@pytest.mark.slow\n@pytest.mark.long\ndef test_f01_x(): ...", "long"),
        ("pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]\ndef test_f01_x(): ...", "long"),
        ("pytestmark = pytest.mark.pgbouncer\ndef test_f01_f33_x(): ...", "pgbouncer"),
    ],
)
def test_runs_are_read_from_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, run: str) -> None:
    """A mark of the test or of its file says in which run it is; a name may carry several numbers, and others carry none."""
    (tmp_path / "test_x.py").write_text(f"{text}\ndef test_f1_y(): ...\ndef test_foo(): ...\n")
    monkeypatch.setattr(scenarios, "TESTS", tmp_path)
    monkeypatch.setattr(scenarios, "ROOT", tmp_path)

    found = scenarios.numbered()

    assert {place.run for place in found[1]} == {run}
    assert set(found) == ({1, 33} if "f33" in text else {1})
