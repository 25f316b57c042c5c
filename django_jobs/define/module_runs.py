"""Telling a function that is declared again, as a reload of its module does, from a second one of the same name."""

from __future__ import annotations

import sys
from collections.abc import Callable


def module_run(func: Callable[..., object]) -> object:
    """Return what stands for one execution of a function's module; a reload is another one. None if it is unknown."""
    return run_of(func.__module__)


def run_of(module: str) -> object:
    """Return what stands for the present execution of a module; None if it is unknown."""
    return getattr(sys.modules.get(module), "__spec__", None)


def is_second(one: Callable[..., object], run: object, other: Callable[..., object]) -> bool:
    """Say whether a module has, in the one execution ``run``, a second function of the same name.

    What a function makes anew in each of its calls may be declared again.
    """
    if one is other or run is None or "<locals>" in other.__qualname__:
        return False
    return run is module_run(other)
