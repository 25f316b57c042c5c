"""How far the run is: a bar on a terminal, a line per tenth elsewhere."""

from __future__ import annotations

from typing import Protocol

WIDTH = 30


class Screen(Protocol):
    """Where the bar is drawn: a stream, or a command's `stdout`."""

    def write(self, text: str, /) -> object:
        """Write a part of a line or several lines."""

    def flush(self) -> object:
        """Bring out what was written."""

    def isatty(self) -> bool:
        """Whether a person looks at it."""


class Progress:
    """Draws one bar; `say` puts a line of text above it."""

    def __init__(self, stream: Screen, *, total: int, label: str) -> None:
        self._stream = stream
        self._total = total
        self._label = label
        self._is_terminal = stream.isatty()
        self._shown = -1
        self._drawn = ""

    def update(self, done: int) -> None:
        """Show that `done` of all are done; what was shown already is not shown again."""
        percent = 100 * done // self._total
        if self._is_terminal:
            filled = WIDTH * done // self._total
            self._draw(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {percent:3} %  {done}/{self._total} {self._label}")
        elif percent // 10 > self._shown // 10:
            self._stream.write(f"{percent // 10 * 10:3} %  {done}/{self._total} {self._label}\n")
            self._stream.flush()
        self._shown = max(self._shown, percent)

    def say(self, text: str) -> None:
        """Print a line."""
        bar = self._drawn
        self._clear()
        self._stream.write(f"{text}\n")
        if bar:
            self._draw(bar)
        self._stream.flush()

    def close(self) -> None:
        """Leave the last bar where it is and go on below it."""
        if self._drawn:
            self._stream.write("\n")
            self._drawn = ""
        self._stream.flush()

    def _draw(self, bar: str) -> None:
        if bar != self._drawn:
            self._stream.write("\r" + bar.ljust(len(self._drawn)))
            self._stream.flush()
            self._drawn = bar

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write("\r" + " " * len(self._drawn) + "\r")
            self._drawn = ""
