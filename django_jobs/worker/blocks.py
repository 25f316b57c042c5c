"""How deep the connections of a thread are in transactions, compared with when its handler began."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper


class Blocks:
    """The connections of one thread, each with the blocks that were open on it before the handler."""

    def __init__(self, found: Iterable[BaseDatabaseWrapper]) -> None:
        self._before = {
            item.alias: (item, len(item.atomic_blocks), len(item.savepoint_ids), item.in_atomic_block) for item in found
        }

    def is_inside(self) -> bool:
        """Say whether the handler has a block of its own open; may be asked from another thread."""
        return any(len(connection.atomic_blocks) > depth for connection, depth, _, _ in self._before.values())

    def would_doom(self, connection: BaseDatabaseWrapper) -> bool:
        """Say whether an error here would end the transaction around the handler, which it could not put right."""
        _, _, many, within = self._before.get(connection.alias, (None, 0, 0, False))
        own = connection.savepoint_ids[many:]
        return within and bool(own) and own[0] is None

    def is_bare(self, connection: BaseDatabaseWrapper) -> bool:
        """Say whether an error of the server ends the transaction around the handler: no savepoint is in between."""
        _, _, many, within = self._before.get(connection.alias, (None, 0, 0, False))
        return within and all(sid is None for sid in connection.savepoint_ids[many:])

    def wrap(self, wrapper: Callable[..., Any]) -> None:
        """Have the statements of these connections go through a function, before what others put there."""
        for connection, *_ in self._before.values():
            connection.execute_wrappers.insert(0, wrapper)

    def unwrap(self, wrapper: Callable[..., Any]) -> None:
        """Take it away again."""
        for connection, *_ in self._before.values():
            with contextlib.suppress(ValueError):  # the handler took it away
                connection.execute_wrappers.remove(wrapper)
