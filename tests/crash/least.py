"""How many cells of each kind must run at least: a change that makes the matrix smaller has to say so here."""

from __future__ import annotations

from tests.crash.cells import CLOCKS, ENDS, SERVER, STANDS, STOPS

LEAST: dict[str, dict[str, int]] = {
    "postgresql": {
        **dict.fromkeys((*ENDS, *STANDS, *SERVER, *CLOCKS, "restart", "cancel"), 41),
        **dict.fromkeys(STOPS, 39),
    },
    "sqlite": {**dict.fromkeys(ENDS, 44), **dict.fromkeys(STOPS, 42), **dict.fromkeys((*STANDS, "cancel"), 28)},
}
