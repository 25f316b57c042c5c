"""Which queues a worker serves: those that it names, or every one, less those that it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

_EXCEPT = "except"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a worker was started with; without names every queue but the excluded ones."""

    names: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __contains__(self, queue_name: str) -> bool:
        return queue_name in self.names if self.names else queue_name not in self.excluded

    def __str__(self) -> str:
        left_out = f" but {', '.join(self.excluded)}" if self.excluded else ""
        return ", ".join(self.names) or f"all{left_out}"

    @property
    def is_all(self) -> bool:
        """Whether there is no queue that it would not serve."""
        return not self.names and not self.excluded

    def among(self, queues: Iterable[str]) -> list[str]:
        """Return those of these queues that it serves."""
        return [queue for queue in queues if queue in self]

    def to_text(self) -> str:
        """Write for the worker's row."""
        return json.dumps({_EXCEPT: list(self.excluded)} if self.excluded else list(self.names))

    @classmethod
    def from_text(cls, text: str) -> Served:
        """Read what :meth:`to_text` wrote.

        Raises:
            ValueError: It is no such text.
        """
        found = json.loads(text)
        if isinstance(found, dict):
            return cls(excluded=_names(found.get(_EXCEPT)))
        return cls(names=_names(found))


def _names(found: object) -> tuple[str, ...]:
    if not isinstance(found, list):
        msg = f"{found!r} is no list of queues"
        raise ValueError(msg)
    return tuple(map(str, found))
