"""Somebody who follows a page to the letter, and compares what happens with what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.blocks import Block, Task, commands_of

LIMIT = 60  # seconds for one command
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# What differs from run to run; spaces too, because columns are as wide as their widest cell.
VARIABLE = re.compile(
    rf"(?P<uuid>{UUID})"
    r"|(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b)"
    r"|(?P<date>\b\w{3}, \d\d \w{3} \d{4}\b)"
    r"|(?P<hex>\b(?:dj1_|v1:|source:)?[0-9a-f]{12,}\b)"
    r"|(?P<length>\b\d+(?:\.\d+)? ?(?:ms|s|seconds?)\b)"
    r"|(?P<space>\s+|[-─═]{3,})"
    r"|(?P<any>…)"
)
PATTERNS = {
    "time": r"(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?",
    "date": r"\w{3}, \d\d? \w{3} \d{4}",
    "hex": r"(?:dj1_|v1:|source:)?[0-9a-f]{12,}",
    "length": r"\d+(?:\.\d+)? ?(?:ms|s|seconds?)",
    "space": r"[\s─═-]+",
    "any": r".*",
}
DOCTEST = (
    "import doctest, pathlib, sys; flags = doctest.ELLIPSIS; doctest.ELLIPSIS_MARKER = '…'; "
    "test = doctest.DocTestParser().get_doctest(pathlib.Path('{file}').read_text(), {{}}, 'page', None, 0); "
    "runner = doctest.DocTestRunner(verbose=False, optionflags=flags); runner.run(test); "
    "sys.exit(bool(runner.failures))"
)


class PageError(AssertionError):
    """The page shows something that does not happen."""


@dataclass(slots=True, kw_only=True)
class Reader:
    """Follows pages in a folder; ``ids`` maps the ids that a page shows to those that were seen."""

    folder: Path
    environment: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    def follow(self, block: Block) -> None:
        """Do what a block asks for; raise PageError when something else happens than it shows."""
        match block.task:
            case Task.WRITE:
                path = self.folder / block.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.body)
            case Task.APPEND:
                with (self.folder / block.path).open("a") as file:
                    file.write("\n" + block.body)
            case Task.RUN:
                for command in commands_of(block):
                    self._run(command.line, command.output, block.place)
            case Task.PYTHON:
                self._python(block)

    def _run(self, line: str, expected: Sequence[str], place: str) -> None:
        if line.startswith("cd "):
            self.folder = self.folder / line.removeprefix("cd ")
            return
        for shown, seen in self.ids.items():
            line = line.replace(shown, seen)
        code, output = self._call(["bash", "-c", line])
        if code != 0:
            raise PageError(f"{place}: `{line}` ended with exit code {code} and printed:\n{output}")
        self._compare(expected, output.splitlines(), f"{place}: `{line}`")

    def _call(self, command: Sequence[str]) -> tuple[int, str]:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what the command started must not outlive it
            output, _ = process.communicate()
            raise PageError(f"{command[-1]!r} did not end within {LIMIT} seconds; it printed:\n{output}") from None
        return process.returncode, output

    def _python(self, block: Block) -> None:
        session = self.folder / "session.txt"
        session.write_text(self._translated(block.body))
        shell = [".venv/bin/python", "manage.py", "shell", "-c", DOCTEST.format(file=session.name)]
        code, output = self._call(shell)
        session.unlink()
        if code != 0:
            raise PageError(f"{block.place}: the session went another way:\n{output}")

    def _translated(self, text: str) -> str:
        return re.sub(UUID, lambda found: self.ids.get(found[0], found[0]), text)

    def _compare(self, expected: Sequence[str], actual: Sequence[str], what: str) -> None:
        wanted = [line.strip() for line in expected if line.strip()]
        rest = [line.strip() for line in actual if line.strip()]
        for place, line in enumerate(wanted):
            if line == "…":
                following = wanted[place + 1 : place + 2]
                while rest and not (following and self._matches(following[0], rest[0])):
                    rest.pop(0)
            elif not rest or not self._matches(line, rest[0]):
                seen = rest[0] if rest else "nothing more"
                raise PageError(f"{what}: the page shows\n  {line}\nbut there was\n  {seen}\nin\n" + "\n".join(actual))
            else:
                self._learn(line, rest.pop(0))
        if rest:
            raise PageError(f"{what}: the page does not show\n  {rest[0]}\nin\n" + "\n".join(actual))

    def _matches(self, shown: str, seen: str) -> bool:
        found = re.fullmatch(self._pattern(shown), seen)
        return found is not None

    def _pattern(self, shown: str) -> str:
        parts, end = [], 0
        for found in VARIABLE.finditer(shown):
            parts.append(re.escape(shown[end : found.start()]))
            kind = found.lastgroup or ""
            if kind == "uuid":
                parts.append(self.ids.get(found[0], UUID))
            else:
                parts.append(PATTERNS[kind])
            end = found.end()
        return "".join([*parts, re.escape(shown[end:])])

    def _learn(self, shown: str, seen: str) -> None:
        self.ids.update(zip(re.findall(UUID, shown), re.findall(UUID, seen), strict=False))
