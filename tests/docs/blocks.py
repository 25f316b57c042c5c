"""The fenced blocks of a tutorial page, and what each asks its reader to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r":(?P<name>[a-z-]+): *(?P<value>.*)")
AT_THE_END = ", at the end"
PROMPT = "$ "


class Task(StrEnum):
    """What a reader does with a block; its language and its caption say so."""

    WRITE = "write"  # a file of this name with this text
    APPEND = "append"  # the text to the end of the file
    RUN = "run"  # the commands after each prompt, which print what follows them
    PYTHON = "python"  # the lines after each >>> in the project's shell
    SKIP = "skip"  # shown, but not run by the test


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block; ``place`` is its page and line, ``path`` the file that it is about.

    ``django`` names the versions for which it is meant: "from-6.1", "before-6.1" or, for all, nothing.
    """

    place: str
    task: Task
    body: str
    path: str = ""
    django: str = ""

    def is_for(self, version: tuple[int, int]) -> bool:
        """Say whether a reader with this version of Django follows the block."""
        which, _, limit = self.django.partition("-")
        if not which:
            return True
        major, minor = map(int, limit.split("."))
        return (version >= (major, minor)) == {"from": True, "before": False}[which]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command line with what the page shows as its output."""

    line: str
    output: tuple[str, ...]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order; raise ValueError for one that tells its reader nothing to do."""
    text = page.read_text()
    return [
        _block(found, place=f"{page.name}:{text.count(chr(10), 0, found.start()) + 1}")
        for found in FENCE.finditer(text)
        if not found["info"].startswith(("{toctree}", "{note}", "{warning}", "{image}"))
    ]


def _block(found: re.Match[str], *, place: str) -> Block:
    info, lines = found["info"].strip(), found["body"].splitlines()
    options: dict[str, str] = {}
    if info.startswith("{code-block}"):
        info = info.removeprefix("{code-block}").strip()
        while lines and (option := OPTION.fullmatch(lines[0])):
            options[option["name"]] = option["value"]
            lines.pop(0)
        while lines and not lines[0]:
            lines.pop(0)
    body = "\n".join(lines) + "\n"
    caption = options.get("caption", "")
    if options.get("class") == "not-run":
        return Block(place=place, task=Task.SKIP, body=body)
    if info == "console":
        return Block(place=place, task=Task.RUN, body=body)
    if info == "pycon":
        return Block(place=place, task=Task.PYTHON, body=body)
    django = options.get("class", "").removeprefix("django-")
    if caption.endswith(AT_THE_END):
        path = caption.removesuffix(AT_THE_END)
        return Block(place=place, task=Task.APPEND, body=body, path=path, django=django)
    if caption:
        return Block(place=place, task=Task.WRITE, body=body, path=caption, django=django)
    raise ValueError(
        f"{place}: a block of {info or 'no language'} without a caption: what shall the reader do with it?"
    )


def commands_of(block: Block) -> list[Command]:
    """Split a console block into its commands."""
    commands: list[Command] = []
    for line in block.body.splitlines():
        if line.startswith(PROMPT):
            commands.append(Command(line=line.removeprefix(PROMPT), output=()))
        elif not commands:
            raise ValueError(f"{block.place}: a console block begins with a prompt, not with {line!r}.")
        else:
            last = commands.pop()
            commands.append(Command(line=last.line, output=(*last.output, line)))
    return commands
