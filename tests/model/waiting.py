"""Search through every order of events around one ordering key at one destination, with switches for wrong rules.

Only the head of the key is due, the others wait. A statement that promotes is two steps here: it looks at its snapshot,
then it writes under the row lock, because under READ COMMITTED the look is as old as the statement. Producers hold the
counter row of the key from their first statement to their end.

A delivery is (state, attempts, arrivals); states are waiting, pending, claimed, done (published), dead, gone (discarded).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.model.found import Found

WAITING, PENDING, CLAIMED, DONE, DEAD, GONE = "waiting", "pending", "claimed", "done", "dead", "gone"
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the code does; a mutant switches one of them."""

    sweeps: bool = True  # a walk over the keys promotes heads that wait
    promotes_after_commit: bool = True  # a producer looks at its own event again once it has committed
    looks_under_lock: bool = True  # its first look comes in a statement after the one that got the counter's lock
    holds_counter: bool = True  # numbers come from a row that is held until the end, not from a sequence
    marks_and_promotes_at_once: bool = True  # in one statement
    discard_promotes: bool = True
    claimed_is_unfinished: bool = True  # also for whoever looks at predecessors
    promotes_only_waiting: bool = True  # the write asks for the state again
    promotes_only_if_marked: bool = True  # the promotion hangs on the rows that the mark returned
    asks_before_own_promotion: bool = True
    marks_are_fenced: bool = True
    # What may happen in this world.
    statements_are_slow: bool = True  # looking and writing are two steps
    producers_die: bool = True  # between commit and promotion
    faults: int = 2
    producers: int = 3
    dispatchers: int = 2


class Delivery(NamedTuple):
    """One row; attempts counts claims, arrivals what the destination got."""

    state: str
    attempts: int = 0
    arrivals: int = 0


class Actor(NamedTuple):
    """Where somebody is: its step, the row it deals with, the attempt or whether it saw something, the row to promote."""

    at: str = "idle"
    row: int = NOBODY
    seen: int = 0
    target: int = NOBODY


class World(NamedTuple):
    """One state of everything; None is a row that is not committed while later ones are."""

    rows: tuple[Delivery | None, ...]
    producers: tuple[Actor, ...]
    dispatchers: tuple[Actor, ...]
    operator: Actor
    sweeper: int
    faults: int


class Step(NamedTuple):
    """One thing that happens; faults are left out where it is asked whether everything ends well by itself."""

    told: str
    world: World
    fault: bool = False


class Search:
    """Breadth first through all worlds that the rules allow."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self, limit: int = 3_000_000) -> Found:
        """Search to the end; the first problem has the shortest trace."""
        start = World(
            (),
            (Actor(),) * self.rules.producers,
            (Actor(),) * self.rules.dispatchers,
            Actor(),
            NOBODY,
            self.rules.faults,
        )
        came: dict[World, tuple[World, str] | None] = {start: None}
        healthy: dict[World, list[World]] = {}
        stuck = None
        waiting = deque([start])
        while waiting:
            world = waiting.popleft()
            steps = list(self.steps(world))
            healthy[world] = [step.world for step in steps if not step.fault]
            if not healthy[world] and stuck is None and stays(world):
                stuck = Found(stays(world), trace(came, world), len(came))
            for step in steps:
                known = step.world in came
                problem = left_the_end(world, step.world) or ("" if known else broken(step.world))
                if problem:
                    return Found(problem, (*trace(came, world), step.told), len(came))
                if not known:
                    came[step.world] = (world, step.told)
                    waiting.append(step.world)
                    assert len(came) <= limit, "the world is too large for this search"
        return stuck or Found(circles(healthy), (), len(came))

    def steps(self, world: World) -> Iterator[Step]:
        """Yield everything that may happen next."""
        for place in range(len(world.producers)):
            yield from self._producer(world, place)
        for place in range(len(world.dispatchers)):
            yield from self._dispatcher(world, place)
        yield from self._leases(world)
        yield from self._operator(world)
        if self.rules.sweeps:
            yield from self._sweeper(world)

    # Looks.

    def _unfinished(self, row: Delivery) -> bool:
        return row.state in {WAITING, PENDING, DEAD} or (row.state == CLAIMED and self.rules.claimed_is_unfinished)

    def _next_to_go(self, rows: tuple[Delivery | None, ...], finished: int = NOBODY) -> int:
        """Return the first waiting row that nothing unfinished precedes; ``finished`` counts as settled."""
        for place, row in enumerate(rows):
            if row is None or place == finished:
                continue
            if row.state == WAITING:
                return place
            if self._unfinished(row):
                return NOBODY
        return NOBODY

    def _promoted(self, rows: tuple[Delivery | None, ...], target: int) -> tuple[Delivery | None, ...]:
        if target == NOBODY:
            return rows
        row = rows[target]
        if row is None or (row.state != WAITING and self.rules.promotes_only_waiting):
            return rows
        return put(rows, target, row._replace(state=PENDING))

    # Producers: idle → locked → looked → (committed → promoting) → ended

    def _producer(self, world: World, place: int) -> Iterator[Step]:
        actor = world.producers[place]
        if place and world.producers[place - 1].at == "idle" and actor.at == "idle":
            return  # one is like another: they begin in turn
        if actor.at in {"idle", "early"}:
            yield from self._beginning(world, place)
        elif actor.at in {"locked", "looked"}:
            yield from self._writing(world, place)
            yield self._did(world, place, "rolls back", Actor("end"), fault=True)
        elif actor.at in {"committed", "promoting"}:
            yield from self._following(world, place)
            if self.rules.producers_die:
                yield self._did(world, place, "dies before its promotion", Actor("end"), fault=True)

    def _did(
        self,
        world: World,
        place: int,
        told: str,
        new: Actor,
        *,
        fault: bool = False,
        rows: tuple[Delivery | None, ...] | None = None,
    ) -> Step:
        producers = put(world.producers, place, new)
        changed = world._replace(producers=producers, rows=world.rows if rows is None else rows)
        return Step(f"producer {place} {told}", changed, fault)

    def _beginning(self, world: World, place: int) -> Iterator[Step]:
        actor = world.producers[place]
        held = any(other.at in {"locked", "looked"} for other in world.producers)
        if actor.at == "early":
            if not held:
                yield self._did(world, place, "gets the lock", Actor("looked", len(world.rows), actor.seen))
        elif not self.rules.looks_under_lock:
            behind = int(any_before(world.rows))
            yield self._did(world, place, "looks before it has the lock", Actor("early", NOBODY, behind))
        elif not self.rules.holds_counter:
            number = len(world.rows)
            yield self._did(world, place, "takes a number", Actor("locked", number), rows=(*world.rows, None))
        elif not held:
            yield self._did(world, place, "locks the counter", Actor("locked", len(world.rows)))

    def _writing(self, world: World, place: int) -> Iterator[Step]:
        actor = world.producers[place]
        if actor.at == "locked":
            waits = any_before(world.rows[: actor.row])
            told = f"looks: e{actor.row} {'waits' if waits else 'is due'}"
            yield self._did(world, place, told, Actor("looked", actor.row, int(waits)))
            return
        row = Delivery(WAITING if actor.seen else PENDING)
        rows = (*world.rows, row) if self.rules.holds_counter else put(world.rows, actor.row, row)
        looks_again = self.rules.promotes_after_commit and actor.seen
        then = Actor("committed", actor.row) if looks_again else Actor("end")
        yield self._did(world, place, f"commits e{actor.row}", then, rows=rows)

    def _following(self, world: World, place: int) -> Iterator[Step]:
        actor = world.producers[place]
        promoted = self._promoted(world.rows, actor.row)
        earlier = any(row is not None and self._unfinished(row) for row in world.rows[: actor.row])
        if actor.at == "committed" and self.rules.asks_before_own_promotion and earlier:
            yield self._did(world, place, "sees a predecessor still", Actor("end"))
        elif actor.at == "committed" and self.rules.statements_are_slow:
            yield self._did(world, place, f"sees that e{actor.row} may go", Actor("promoting", actor.row))
        else:
            yield self._did(world, place, f"promotes e{actor.row}", Actor("end"), rows=promoted)

    # Dispatchers: idle → claimed → confirmed → marking → idle

    def _dispatcher(self, world: World, place: int) -> Iterator[Step]:
        actor, name = world.dispatchers[place], f"dispatcher {place}"
        if place and world.dispatchers[place - 1] == actor:
            return
        if actor.at == "idle":
            for number, row in enumerate(world.rows):
                if row is not None and row.state == PENDING:
                    taken = Delivery(CLAIMED, row.attempts + 1, row.arrivals)
                    yield self._moved(
                        world, place, f"{name} claims e{number}", Actor("claimed", number, row.attempts + 1),
                        put(world.rows, number, taken),
                    )  # fmt: skip
            return
        row = world.rows[actor.row]
        assert row is not None
        mine = row.state == CLAIMED and row.attempts == actor.seen
        if world.faults:
            yield self._moved(world, place, f"{name} dies", Actor(), world.rows, fault=True)
        if actor.at == "claimed":
            yield from self._publishing(world, place, row, mine=mine)
        elif actor.at == "confirmed" and self.rules.statements_are_slow:
            target = self._next_to_go(world.rows, actor.row) if self.rules.marks_and_promotes_at_once else NOBODY
            yield self._moved(
                world,
                place,
                f"{name} begins to mark e{actor.row}",
                actor._replace(at="marking", target=target),
                world.rows,
            )
        elif actor.at in {"confirmed", "marking"}:
            yield self._marked(world, place, row, mine=mine)
        elif actor.at == "promoting":
            rows = self._promoted(world.rows, self._next_to_go(world.rows))
            yield self._moved(world, place, f"{name} promotes in a second transaction", Actor(), rows)

    def _publishing(self, world: World, place: int, row: Delivery, *, mine: bool) -> Iterator[Step]:
        actor, name = world.dispatchers[place], f"dispatcher {place}"
        arrived = row._replace(arrivals=row.arrivals + 1)
        yield self._moved(
            world, place, f"{name} publishes e{actor.row}", actor._replace(at="confirmed"),
            put(world.rows, actor.row, arrived),
        )  # fmt: skip
        if not world.faults:
            return
        for state in (PENDING, DEAD):
            for after in (row, arrived):
                settled = after._replace(state=state if mine else after.state)
                yield self._moved(
                    world, place, f"{name} gets no confirmation of e{actor.row}, {state}", Actor(),
                    put(world.rows, actor.row, settled), fault=True,
                )  # fmt: skip

    def _marked(self, world: World, place: int, row: Delivery, *, mine: bool) -> Step:
        actor, name = world.dispatchers[place], f"dispatcher {place}"
        target = actor.target
        if actor.at == "confirmed" and self.rules.marks_and_promotes_at_once:
            target = self._next_to_go(world.rows, actor.row)
        does = mine or not self.rules.marks_are_fenced
        rows = put(world.rows, actor.row, row._replace(state=DONE)) if does else world.rows
        if self.rules.marks_and_promotes_at_once and (does or not self.rules.promotes_only_if_marked):
            rows = self._promoted(rows, target)
        then = Actor() if self.rules.marks_and_promotes_at_once or not does else actor._replace(at="promoting")
        return self._moved(world, place, f"{name} {'marks' if does else 'may not mark'} e{actor.row}", then, rows)

    def _moved(
        self,
        world: World,
        place: int,
        told: str,
        new: Actor,
        rows: tuple[Delivery | None, ...],
        *,
        fault: bool = False,
    ) -> Step:
        dispatchers = tuple(sorted(put(world.dispatchers, place, new)))
        return Step(told, world._replace(rows=rows, dispatchers=dispatchers, faults=world.faults - int(fault)), fault)

    # Everybody else.

    def _leases(self, world: World) -> Iterator[Step]:
        for number, row in enumerate(world.rows):
            if row is None or row.state != CLAIMED:
                continue
            back = world._replace(rows=put(world.rows, number, row._replace(state=PENDING)))
            holders = [actor for actor in world.dispatchers if actor.at != "idle" and actor.row == number]
            if not any(actor.seen == row.attempts for actor in holders):
                yield Step(f"the lease of e{number} is over, its holder dead", back)
            elif world.faults:
                yield Step(
                    f"the lease of e{number} is over, its holder slow", back._replace(faults=world.faults - 1), True
                )

    def _operator(self, world: World) -> Iterator[Step]:
        for number, row in enumerate(world.rows):
            if row is not None and row.state == DEAD:
                again = put(world.rows, number, row._replace(state=PENDING))
                yield Step(f"the operator tries e{number} again", world._replace(rows=again), True)
                if world.operator.at == "idle":
                    target = self._next_to_go(world.rows, number) if self.rules.discard_promotes else NOBODY
                    yield Step(
                        f"the operator begins to discard e{number}",
                        world._replace(operator=Actor("discarding", number, 0, target)),
                        True,
                    )
        if world.operator.at != "discarding":
            return
        number, target = world.operator.row, world.operator.target
        row = world.rows[number]
        assert row is not None
        if not self.rules.statements_are_slow and self.rules.discard_promotes:
            target = self._next_to_go(world.rows, number)
        does = row.state == DEAD
        rows = put(world.rows, number, row._replace(state=GONE)) if does else world.rows
        if does or not self.rules.promotes_only_if_marked:
            rows = self._promoted(rows, target)
        yield Step(f"e{number} is {'' if does else 'not '}discarded", world._replace(rows=rows, operator=Actor()))
        yield Step("the discard is rolled back", world._replace(operator=Actor()), True)

    def _sweeper(self, world: World) -> Iterator[Step]:
        if world.sweeper == NOBODY:
            target = self._next_to_go(world.rows)
            if target != NOBODY:
                yield Step(f"the sweep sees e{target}", world._replace(sweeper=target))
        else:
            rows = self._promoted(world.rows, world.sweeper)
            yield Step(f"the sweep promotes e{world.sweeper}", world._replace(rows=rows, sweeper=NOBODY))


def any_before(rows: tuple[Delivery | None, ...]) -> bool:
    """Say whether a producer sees something unfinished among the rows: its look has no switch."""
    return any(row is not None and row.state in {WAITING, PENDING, CLAIMED, DEAD} for row in rows)


def put(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    """Return a copy with another value at a place."""
    return (*values[:place], value, *values[place + 1 :])


def trace(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    """Return what happened on the way to a world."""
    told = []
    while (before := came[world]) is not None:
        world, what = before
        told.append(what)
    return tuple(reversed(told))


def left_the_end(before: World, after: World) -> str:
    """Say what moved on although it was published or discarded."""
    for number, (old, new) in enumerate(zip(before.rows, after.rows, strict=False)):
        if old and new and old.state in {DONE, GONE} and old.state != new.state:
            return f"e{number} left {old.state} for {new.state}"
    return ""


def broken(world: World) -> str:
    """Say which promise a world breaks."""
    for number, row in enumerate(world.rows):
        if row is None:
            continue
        if row.arrivals > row.attempts:
            return f"e{number} was published twice without a second attempt"
        for earlier in world.rows[:number]:
            if earlier is None:
                continue
            if row.state in {CLAIMED, DONE} and earlier.state in {WAITING, PENDING, CLAIMED, DEAD}:
                return f"order: e{number} is {row.state} behind one that is {earlier.state}"
            if row.arrivals and not earlier.arrivals and earlier.state != GONE:
                return f"order: e{number} arrived before an earlier one"
    return ""


def stays(world: World) -> str:
    """Say what stays for ever in a world in which nothing happens by itself any more; behind a dead one that is right."""
    for number, row in enumerate(world.rows):
        if row is None or row.state in {DONE, GONE}:
            continue
        return "" if row.state == DEAD else f"e{number} stays {row.state} for ever"
    return ""


def circles(healthy: dict[World, list[World]]) -> str:
    """Say whether what happens by itself could go round for ever: then not every order of events ends well."""
    before = dict.fromkeys(healthy, 0)
    for following in healthy.values():
        for world in following:
            before[world] += 1
    free = [world for world, many in before.items() if not many]
    ended = 0
    while free:
        ended += 1
        for world in healthy[free.pop()]:
            before[world] -= 1
            if not before[world]:
                free.append(world)
    return "" if ended == len(healthy) else f"{len(healthy) - ended} worlds may go round for ever"


QUIET = replace(
    Rules(), sweeps=False, producers_die=False, statements_are_slow=False, producers=2
)  # without the sweep's help
