"""How many cells of each kind must run at least: a change that makes the matrix smaller has to say so here."""

from __future__ import annotations

from tests.crash.cells import ENDS, SERVER, STANDS

LEAST: dict[str, dict[str, int]] = {
    "postgresql": {
        **dict.fromkeys((*ENDS, *STANDS, *SERVER, "cancel"), 41),
        "term": 39,
        "freeze": 38,
    },
    "sqlite": {**dict.fromkeys(ENDS, 44), "term": 42, "freeze": 26, "cancel": 28},
}
