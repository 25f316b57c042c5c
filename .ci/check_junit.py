"""Fail unless a JUnit report shows tests, all of them run: ``python check_junit.py REPORT``.

Whether they passed is judged by the step that ran them, which may run again what failed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter


def main(report: str) -> str | None:
    """Return the complaint, or None."""
    root = ElementTree.parse(report).getroot()  # written by this very run
    cases = list(root.iter("testcase"))
    if not cases:
        return f"{report} shows no test at all."
    skipped = Counter(
        f"{skip.get('type', '')}: {skip.get('message', '')}" for case in cases for skip in case.iter("skipped")
    )
    if skipped:
        reasons = "\n".join(f"  {count} × {reason}" for reason, count in sorted(skipped.items()))
        return f"{skipped.total()} of {len(cases)} tests did not run:\n{reasons}"
    print(f"{len(cases)} tests, none skipped")
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
