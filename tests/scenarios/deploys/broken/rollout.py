"""A deploy that went wrong: a module that the code needs was not copied."""

from __future__ import annotations

import no_such_module_of_the_new_code  # type: ignore[import-not-found]  # noqa: F401
