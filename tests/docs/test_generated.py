"""What the documentation takes from the code is what the code says today."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from django_jobs.conf import KEYS
from django_jobs.domain.errors import classify
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.states import ErrorClass
from docs import generate
from docs.generators import diagram, errors

PAGES = {page.relative_to(generate.DOCS).as_posix(): page for page in generate.DOCS.rglob("*.md")}


def test_generated_parts_are_up_to_date() -> None:
    """Running ``python docs/generate.py`` would change nothing."""
    found = [path.relative_to(generate.ROOT).as_posix() for path in generate.stale()]

    assert found == [], "run: python docs/generate.py"


def test_every_maker_has_its_place() -> None:
    """Each generated part stands on exactly one page, and no page asks for one that is not made."""
    places = [found["name"] for page in PAGES.values() for found in generate.BLOCK.finditer(page.read_text())]

    assert sorted(places) == sorted(generate.parts())


def test_a_changed_page_is_stale(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """A table that lacks one setting is noticed."""
    page = PAGES["reference/settings.md"]
    changed = re.sub(r"^\| `GRACE`.*\n", "", page.read_text(), flags=re.MULTILINE)
    real = generate.Path.read_text
    monkeypatch.setattr(generate.Path, "read_text", lambda path, *args: changed if path == page else real(path, *args))

    assert page in generate.stale()


def test_settings_page_names_every_setting() -> None:
    """Each key of DJANGO_JOBS has a row."""
    text = PAGES["reference/settings.md"].read_text()

    assert [key for key in KEYS if f"| `{key}` |" not in text] == []


def test_diagram_shows_every_move() -> None:
    """The picture is well-formed and labels an arrow for each move of this version."""
    picture = diagram.svg()
    ElementTree.fromstring(picture)
    shown = set(re.findall(r"[a-z_]+", " ".join(re.findall(r">([a-z_, ]+)</text>", picture))))

    assert {name for names in diagram.edges().values() for name in names} <= shown


@pytest.mark.parametrize(
    ("error", "expected"), [(TimeoutError(), ErrorClass.TRANSIENT), (KeyError(), ErrorClass.UNKNOWN)]
)
def test_class_table_agrees_with_the_rules(error: Exception, expected: ErrorClass) -> None:
    """An error is in the table of its class, and one of class unknown is in none."""
    rows = [line for line in errors.class_table().splitlines() if f"`{type(error).__name__}`" in line]

    assert classify(error, RetryPolicy()).error_class is expected
    assert [row.split("|")[1].strip() for row in rows] == ([] if expected is ErrorClass.UNKNOWN else [str(expected)])
