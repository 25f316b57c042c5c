"""The test of the tutorial notices a page that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Task, blocks_of
from tests.docs.reader import PageError, Reader

FIRST, SECOND = "01a22876-6aef-7053-898c-6b8d0328d0fb", "01a22876-70be-7680-870e-3d81bbd87a7a"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader in an empty folder."""
    return Reader(folder=tmp_path, environment={"PATH": "/usr/bin:/bin"})


def follow(reader: Reader, text: str) -> None:
    """Follow a page with this text."""
    page = reader.folder / "page.md"
    page.write_text(text)
    for block in blocks_of(page):
        reader.follow(block)


def test_page_that_is_right_is_followed(reader: Reader) -> None:
    """Files are written and extended, and a command that prints what is shown passes."""
    follow(
        reader,
        "```{code-block} text\n:caption: a/b.txt\n\none\n```\n"
        "```{code-block} text\n:caption: a/b.txt, at the end\n\ntwo\n```\n"
        "```console\n$ cat a/b.txt\none\n\ntwo\n```\n",
    )

    assert (reader.folder / "a" / "b.txt").read_text() == "one\n\ntwo\n"


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("$ echo other\nshown", id="another output"),
        pytest.param("$ echo shown; echo more\nshown", id="more output"),
        pytest.param("$ echo more", id="unshown output"),
        pytest.param("$ true\nshown", id="no output"),
        pytest.param("$ false", id="exit code"),
        pytest.param("$ echo a; echo c\na\n…\nb", id="end never comes"),
    ],
)
def test_command_that_does_something_else_is_noticed(reader: Reader, block: str) -> None:
    """Another output, a missing or an unshown line and a failing command each fail the page."""
    with pytest.raises(PageError):
        follow(reader, f"```console\n{block}\n```\n")


def test_ids_times_and_widths_may_differ(reader: Reader) -> None:
    """What differs from run to run is no difference."""
    seen = f"job {SECOND}   at 2026-11-29 18:00:00.123 took 12.5 s"
    shown = f"job {FIRST} at 2020-01-01 00:00:00 took 3 s"

    follow(reader, f"```console\n$ echo '{seen}'\n{shown}\n```\n")


def test_an_id_stands_for_the_same_thing_all_along(reader: Reader) -> None:
    """An id that a page has shown means the one that was seen then, in outputs and in later commands."""
    follow(reader, f"```console\n$ echo {SECOND}\n{FIRST}\n$ echo id {FIRST}\nid {FIRST}\n```\n")
    assert reader.ids == {FIRST: SECOND}

    with pytest.raises(PageError):
        follow(reader, f"```console\n$ echo {SECOND[:-1]}0\n{FIRST}\n```\n")


def test_ellipsis_stands_for_any_lines(reader: Reader) -> None:
    """A line with only an ellipsis skips until the next shown line comes."""
    follow(reader, "```console\n$ printf 'a\\nb\\nc\\n'\na\n…\nc\n```\n")


def test_block_without_a_task_is_refused(reader: Reader) -> None:
    """A block that tells its reader nothing to do is an error of the page."""
    with pytest.raises(ValueError, match="without a caption"):
        follow(reader, "```python\nx = 1\n```\n")


def test_block_that_is_not_run_says_so(tmp_path: Path) -> None:
    """Only the class not-run keeps a block from being followed."""
    page = tmp_path / "page.md"
    page.write_text("```{code-block} console\n:class: not-run\n\n$ rm x\n```\n")

    assert [block.task for block in blocks_of(page)] == [Task.SKIP]


def test_block_for_some_versions_is_followed_on_them_alone(tmp_path: Path) -> None:
    """A block for newer Django and its twin for older ones take turns."""
    page = tmp_path / "page.md"
    classes = ("django-from-6.1", "django-before-6.1")
    page.write_text("".join(f"```{{code-block}} text\n:caption: a\n:class: {name}\n\nx\n```\n" for name in classes))
    newer, older = blocks_of(page)

    assert [newer.is_for(version) for version in ((5, 2), (6, 1), (6, 2))] == [False, True, True]
    assert [older.is_for(version) for version in ((5, 2), (6, 1), (6, 2))] == [True, False, False]
