"""Fail unless a JUnit report shows tests, all of them run: ``python check_junit.py REPORT``."""

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
    bad = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    if skipped or bad:
        reasons = "\n".join(f"  {count} × {reason}" for reason, count in sorted(skipped.items()))
        return f"{skipped.total()} of {len(cases)} tests did not run, {len(bad)} failed:\n{reasons}"
    print(f"{len(cases)} tests, none skipped")
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
