"""Raising an exception in another thread, at a place that was judged before and that it has not left since.

The interpreter raises it when that thread runs its next instruction that looks for such things. It is up to the caller
to judge places; here it is made sure that the thread still is where it was when it was judged.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from functools import partial
from itertools import compress, starmap
from types import FrameType

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
_raise_in.restype = ctypes.c_int

_ENOUGH = 50  # turns of a loop; the first one looks for what is to be raised


def can_strike() -> bool:
    """Say whether this interpreter runs one thread at a time: without that, no place can be trusted.

    Nor under a debugger, or measured by coverage, on Python 3.11: each traced thread turns on the spot as soon as it
    calls a function, until what was raised has arrived, which may be never where the thread that is to get it waits.
    """
    if sys.version_info < (3, 12) and sys.gettrace() is not None:
        return False
    is_on = getattr(sys, "_is_gil_enabled", None)
    return is_on is None or bool(is_on())


def strike(ident: int, frame: FrameType, at: int, error: type[BaseException]) -> bool:
    """Raise ``error`` in a thread if it still is at instruction ``at`` of ``frame``; say whether it was.

    The look and the act are one call from C to C: the interpreter passes no other thread the word in between.
    """
    innermost = map(operator.methodcaller("get", ident), map(operator.call, (sys._current_frames,)))  # noqa: SLF001
    same_frame = map(partial(operator.is_, frame), innermost)
    same_place = map(partial(operator.eq, at), map(operator.attrgetter("f_lasti"), (frame,)))
    both = map(operator.and_, same_frame, same_place)
    return bool(sum(starmap(_raise_in, compress(((ident, error),), both))))


def take(error: type[BaseException]) -> bool:
    """Let arrive here what was raised in this thread and has not arrived; say whether something did.

    Taking it back instead would leave the interpreter looking for it for ever, at some cost in every thread.
    """
    try:
        for _ in range(_ENOUGH):
            pass
    except error:
        return True
    return False
