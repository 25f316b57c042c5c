"""Fail when the environment does not hold the Django series that its name promises.

Called as ``python check_django_version.py 6.1``. A dependency with an upper bound can make an installer take an older
Django, and every result would then be about the wrong one.
"""

from __future__ import annotations

import sys

import django


def main(expected: str) -> str | None:
    """Return the complaint, or None."""
    found = ".".join(str(part) for part in django.VERSION[:2])
    if found == expected:
        print(f"Django {django.get_version()} on Python {sys.version.split()[0]}")
        return None
    return f"This environment should run Django {expected} and holds {django.get_version()}: a dependency changed it."


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
