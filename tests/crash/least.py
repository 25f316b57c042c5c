"""How many cells of each kind must run at least: a change that makes the matrix smaller has to say so here."""

from __future__ import annotations

from tests.crash.cells import ENDS, SERVER, STANDS

LEAST: dict[str, dict[str, int]] = {
    "postgresql": {
        **dict.fromkeys((*ENDS, *STANDS, *SERVER, "cancel"), 46),
        "term": 44,
        "freeze": 43,
    },
    "sqlite": {**dict.fromkeys(ENDS, 49), "term": 47, "freeze": 28, "cancel": 30},
}
