"""The picture of a job's states, drawn from ``TRANSITIONS``; only the places of the boxes are chosen here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from django_jobs.domain.states import JobState
from docs.generators.states import built

WIDTH, HEIGHT = 860, 500
BOX_WIDTH, BOX_HEIGHT = 132, 40
START = "new"
PLACES = {
    START: (60, 150),
    JobState.SCHEDULED: (270, 60),
    JobState.QUEUED: (270, 240),
    JobState.FAILED: (270, 420),
    JobState.RUNNING: (600, 140),
    JobState.SUCCEEDED: (770, 60),
    JobState.DEAD_LETTERED: (730, 420),
    JobState.CANCELLED: (770, 240),
}
BENDS = {  # how far the middle of a curve lies beside the straight line
    (JobState.QUEUED, JobState.RUNNING): -26,
    (JobState.RUNNING, JobState.QUEUED): -26,
    (JobState.RUNNING, JobState.SCHEDULED): 0,
    (JobState.RUNNING, JobState.FAILED): 0,
    (JobState.SCHEDULED, JobState.DEAD_LETTERED): -50,
    (JobState.QUEUED, JobState.DEAD_LETTERED): 50,
}
SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    'font-family="system-ui, sans-serif" font-size="14">'
)
TIP = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the picture."""

    x: float
    y: float


def svg() -> str:
    """Return the picture."""
    moves = edges()
    used = {state for edge in moves for state in edge}
    lines = [
        SVG,
        "<title>States of a job and the moves between them</title>",
        TIP,
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>',
        *(_edge(source, target, ", ".join(names)) for (source, target), names in moves.items()),
        *(_box(state) for state in PLACES if state in used),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def edges() -> dict[tuple[str, str], list[str]]:
    """Return the names of the moves by source and target."""
    found: dict[tuple[str, str], list[str]] = {}
    for move in built():
        for source in sorted(move.sources) or [START]:
            for target in sorted(move.targets):
                found.setdefault((source, target), []).append(move.name)
    return found


def _box(state: str) -> str:
    x, y = PLACES[state]
    if state == START:
        return f'<circle cx="{x}" cy="{y}" r="9" fill="#555"/>'
    fill = {"succeeded": "#e3f4e6", "dead_lettered": "#fbe5e3", "running": "#e4edfb"}.get(state, "#f3f3f3")
    return (
        f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8" '
        f'fill="{fill}" stroke="#555"/><text x="{x}" y="{y + 5}" text-anchor="middle" fill="#111">{state}</text>'
    )


def _edge(source: str, target: str, label: str) -> str:
    if source == target:
        x, y = PLACES[source]
        path = f"M{x - 30} {y - 20}C{x - 50} {y - 75} {x + 50} {y - 75} {x + 30} {y - 20}"
        return _curve(path) + _label(Point(x, y - 66), label)
    begin, end = Point(*PLACES[source]), Point(*PLACES[target])
    length = math.dist((begin.x, begin.y), (end.x, end.y))
    bend = BENDS.get((source, target), 0)
    across = Point(-(end.y - begin.y) / length * bend, (end.x - begin.x) / length * bend)
    middle = Point((begin.x + end.x) / 2 + across.x, (begin.y + end.y) / 2 + across.y)
    first, last = _border(begin, middle, source), _border(end, middle, target)
    control = Point(2 * middle.x - (first.x + last.x) / 2, 2 * middle.y - (first.y + last.y) / 2)
    path = f"M{first.x:.1f} {first.y:.1f}Q{control.x:.1f} {control.y:.1f} {last.x:.1f} {last.y:.1f}"
    return _curve(path) + _label(middle, label)


def _border(center: Point, towards: Point, state: str) -> Point:
    """Return where the line from a box's center to a point leaves the box."""
    if state == START:
        return center
    dx, dy = towards.x - center.x, towards.y - center.y
    scale = min(BOX_WIDTH / 2 / abs(dx) if dx else math.inf, BOX_HEIGHT / 2 / abs(dy) if dy else math.inf)
    return Point(center.x + dx * scale, center.y + dy * scale)


def _curve(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#tip)"/>'


def _label(place: Point, text: str) -> str:
    return (
        f'<text x="{place.x:.1f}" y="{place.y + 4:.1f}" text-anchor="middle" fill="#333" font-size="12" '
        f'stroke="#fff" stroke-width="4" paint-order="stroke">{text}</text>'
    )
