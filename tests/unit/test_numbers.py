"""Numbers on the command line: the borders, and what is said beyond them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from django_jobs.management.numbers import DAY, age, at_least_one, port_number, seconds

BORDERS: list[tuple[Callable[[str], float], float, float]] = [
    (at_least_one, 1, 2**63 - 1),
    (seconds, 1, DAY),
    (age, 1, 30 * DAY),
    (port_number, 0, 65535),
]
NAMES = ["whole", "seconds", "age", "port"]


@pytest.mark.parametrize(("read", "least", "most"), BORDERS, ids=NAMES)
def test_borders_are_accepted_and_nothing_beyond(read: Callable[[str], float], least: float, most: float) -> None:
    """The least and the largest number that the sentence names are taken."""
    assert (read(str(least)), read(str(most))) == (least, most)
    for beyond in (least - 1, most + 1):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^'{beyond}' is not a"):
            read(str(beyond))


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-inf", "1e400", "1.5.2", "0x10"])
@pytest.mark.parametrize("read", [row[0] for row in BORDERS], ids=NAMES)
def test_what_is_no_number_is_named(read: Callable[[str], float], text: str) -> None:
    """The text that was given stands in the answer, whatever it is."""
    with pytest.raises(argparse.ArgumentTypeError, match="is not a") as caught:
        read(text)

    assert repr(text) in str(caught.value)
