"""The progress bar on a terminal and elsewhere."""

from __future__ import annotations

import io

from testproject.demo.progress import Progress


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        """Say that it is a terminal."""
        return True


def test_file_gets_a_line_per_tenth_and_no_carriage_return() -> None:
    """Where nobody looks, each tenth is written once, as a line."""
    stream = io.StringIO()
    progress = Progress(stream, total=200, label="orders")

    for done in range(201):
        progress.update(done)

    lines = stream.getvalue().splitlines()
    assert "\r" not in stream.getvalue()
    assert [line.split()[0] for line in lines] == [str(percent) for percent in range(0, 101, 10)]
    assert lines[-1] == "100 %  200/200 orders"


def test_terminal_gets_one_line_that_is_drawn_anew() -> None:
    """On a terminal the bar stays on its line until it is closed."""
    stream = Terminal()
    progress = Progress(stream, total=10, label="orders")

    progress.update(5)
    progress.update(10)
    progress.close()

    first, second = stream.getvalue()[1:].split("\r")
    assert first.startswith("[###############...............]  50 %")
    assert second.startswith("[##############################] 100 %")
    assert stream.getvalue().count("\n") == 1


def test_line_of_text_stands_above_the_bar() -> None:
    """A message replaces the bar, which is drawn again below it."""
    stream = Terminal()
    progress = Progress(stream, total=10, label="orders")
    progress.update(5)

    progress.say("A process was killed.")

    seen = [part for line in stream.getvalue().split("\n") for part in line.split("\r") if part.strip()]
    assert [part.strip()[:7] for part in seen] == ["[######", "A proce", "[######"]
