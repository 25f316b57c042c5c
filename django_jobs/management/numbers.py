"""Numbers on the command line: what is accepted, and one sentence for all else."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)

DAY = 86400  # seconds
LARGEST = 2**63 - 1  # what every database can store


def _read(text: str, *, kind: Callable[[str], Number], least: Number, most: Number, wanted: str) -> Number:
    try:
        value = kind(text)
    except ValueError:
        value = kind("-1")
    if not least <= value <= most:
        msg = f"{text!r} is not {wanted}"
        raise argparse.ArgumentTypeError(msg)
    return value


def at_least_one(text: str) -> int:
    """Read a whole number of at least 1."""
    return _read(text, kind=int, least=1, most=LARGEST, wanted="a whole number of at least 1")


def at_least_zero(text: str) -> int:
    """Read a whole number of at least 0."""
    return _read(text, kind=int, least=0, most=LARGEST, wanted="a whole number of at least 0")


def seconds(text: str) -> float:
    """Read a time in seconds, from one to a day."""
    return _read(text, kind=float, least=1.0, most=DAY, wanted=f"a number of seconds from 1 to {DAY}")


def age(text: str) -> float:
    """Read an age in seconds, from one to thirty days."""
    return _read(text, kind=float, least=1.0, most=30 * DAY, wanted=f"a number of seconds from 1 to {30 * DAY}")


def port_number(text: str) -> int:
    """Read a port, or 0."""
    return _read(text, kind=int, least=0, most=65535, wanted="a port from 0 to 65535")
