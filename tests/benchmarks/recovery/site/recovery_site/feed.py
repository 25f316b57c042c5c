"""Enqueue what is asked for on standard input: a JSON list of keys a line, answered with ``done``."""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    """Serve until the input ends."""
    if os.environ.get("DJANGO_SETTINGS_MODULE"):
        import django

        django.setup()
    adapter = importlib.import_module(os.environ["RECOVERY_ADAPTER"])
    print("ready", flush=True)
    for line in sys.stdin:
        if os.environ.get("DJANGO_SETTINGS_MODULE"):
            from django.db import connections

            connections.close_all()  # a fault may have cut it meanwhile
        adapter.enqueue(json.loads(line))
        print("done", flush=True)


if __name__ == "__main__":
    main()
