"""Search through every order of events between two ordered events, two dispatchers, a destination and its consumer.

The destination may lose confirmations, dispatchers may die anywhere, the consumer may die and sees everything again that
it did not acknowledge. A mutant switches one of the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.found import Found

FIRST, SECOND = 0, 1


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What dispatchers and the consumer do."""

    marks_after_confirmation: bool = True
    confirmations_match: bool = True  # never another event's, left over on a channel
    heads_go_alone: bool = True  # the second event waits until the first is published
    marks_are_fenced: bool = True
    late_answers_count: bool = True  # also for what was taken back meanwhile, and that nobody has claimed since
    keeps_inbox: bool = True
    inbox_commits_with_effect: bool = True
    inbox_outlives_redelivery: bool = True
    acknowledges_after_effect: bool = True
    attempts: int = 2  # claims per event
    arrivals: int = 3  # entries of the destination


class Event(NamedTuple):
    """state: pending, claimed or published; leased: whether the holder's time is not over."""

    state: str = "pending"
    attempt: int = 0
    leased: bool = False


class Dispatcher(NamedTuple):
    """Where it stands, with which event, under which attempt."""

    at: str = "idle"
    event: int = 0
    attempt: int = 0


class World(NamedTuple):
    """``wire``: requests under way (dispatcher, event, attempt); ``got``: what arrived, in its order."""

    events: tuple[Event, ...] = (Event(), Event())
    dispatchers: tuple[Dispatcher, ...] = (Dispatcher(), Dispatcher())
    wire: tuple[tuple[int, int, int], ...] = ()
    got: tuple[int, ...] = ()
    answered: frozenset[int] = frozenset()  # events whose last attempt has its confirmation on record
    acknowledged: frozenset[int] = frozenset()
    inbox: frozenset[int] = frozenset()
    effects: tuple[int, int] = (0, 0)
    consumer: tuple[str, int] = ("idle", 0)


Step = tuple[str, World]


class Search:
    """Breadth first through all worlds that the rules allow."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self, limit: int = 3_000_000) -> Found:
        """Search to the end; the first problem has the shortest trace."""
        came: dict[World, tuple[World, str] | None] = {World(): None}
        waiting = deque([World()])
        while waiting:
            world = waiting.popleft()
            for told, after in self.steps(world):
                if after in came:
                    continue
                came[after] = (world, told)
                problem = self.broken(after)
                if problem:
                    return Found(problem, trace(came, after), len(came))
                waiting.append(after)
                assert len(came) <= limit, "the world is too large for this search"
        return Found("", (), len(came))

    def steps(self, world: World) -> Iterator[Step]:
        """Yield everything that may happen next."""
        yield from self._leases(world)
        yield from self._network(world)
        for place in (0, 1):
            yield from self._dispatcher(world, place)
        yield from self._consumer(world)

    def _leases(self, world: World) -> Iterator[Step]:
        for number, event in enumerate(world.events):
            if event.state == "claimed" and event.leased:
                yield f"the lease of e{number} ends", changed(world, number, event._replace(leased=False))
            elif event.state == "claimed":
                yield f"e{number} is taken back", changed(world, number, Event("pending", event.attempt))

    def _network(self, world: World) -> Iterator[Step]:
        for message in sorted(set(world.wire)):
            place, number, attempt = message
            left = list(world.wire)
            left.remove(message)
            gone = world._replace(wire=tuple(left))
            yield f"the request with e{number} is lost", gone
            if len(world.got) >= self.rules.arrivals:
                continue
            stored = gone._replace(got=(*world.got, number))
            yield f"e{number} arrives, its confirmation is lost", stored
            if world.dispatchers[place] == Dispatcher("waiting", number, attempt):
                confirmed = Dispatcher("confirmed", number, attempt)
                yield f"e{number} arrives, dispatcher {place} hears so", at(stored, place, confirmed)

    def _dispatcher(self, world: World, place: int) -> Iterator[Step]:
        one, name = world.dispatchers[place], f"dispatcher {place}"
        if one.at == "idle":
            yield from self._claims(world, place)
            return
        yield f"{name} dies", at(world, place, Dispatcher())
        event = world.events[one.event]
        mine = (event.state, event.attempt) == ("claimed", one.attempt)
        sent = world._replace(wire=tuple(sorted((*world.wire, (place, one.event, one.attempt)))))
        if one.at == "claimed" and self.rules.marks_after_confirmation:
            yield f"{name} sends e{one.event}", at(sent, place, one._replace(at="waiting"))
        elif one.at == "claimed":
            marked = changed(world, one.event, Event("published", one.attempt))
            yield f"{name} marks e{one.event} first", at(marked, place, one._replace(at="marked"))
        elif one.at == "marked":
            yield f"{name} sends e{one.event}", at(sent, place, Dispatcher())
        elif one.at == "waiting":
            if not self.rules.confirmations_match:
                yield f"{name} takes an old confirmation", at(world, place, one._replace(at="confirmed"))
            yield f"{name} waits no longer", at(world, place, one._replace(at="late"))
        elif one.at == "late":
            may = mine or not self.rules.marks_are_fenced
            after = changed(world, one.event, Event("pending", event.attempt)) if may else world
            yield f"{name} {'puts' if may else 'may not put'} e{one.event} back", at(after, place, Dispatcher())
        elif one.at == "confirmed":
            yield self._confirmed(world, place, mine=mine)

    def _confirmed(self, world: World, place: int, *, mine: bool) -> Step:
        one, event = world.dispatchers[place], world.events[world.dispatchers[place].event]
        last = event.attempt == one.attempt
        counts = mine or (self.rules.late_answers_count and last and event.state == "pending")
        after = changed(world, one.event, Event("published", one.attempt)) if counts else world
        if last:
            after = after._replace(answered=after.answered | {one.event})
        return f"dispatcher {place} {'marks' if counts else 'may not mark'} e{one.event}", at(
            after, place, Dispatcher()
        )

    def _claims(self, world: World, place: int) -> Iterator[Step]:
        for number, event in enumerate(world.events):
            first = number == FIRST or not self.rules.heads_go_alone or world.events[FIRST].state == "published"
            if event.state == "pending" and event.attempt < self.rules.attempts and first:
                taken = changed(world, number, Event("claimed", event.attempt + 1, True))
                taken = taken._replace(answered=taken.answered - {number})
                claimed = Dispatcher("claimed", number, event.attempt + 1)
                yield f"dispatcher {place} claims e{number}", at(taken, place, claimed)

    def _consumer(self, world: World) -> Iterator[Step]:
        where, entry = world.consumer
        if where == "idle":
            if world.inbox and not self.rules.inbox_outlives_redelivery:
                yield "the inbox is emptied", world._replace(inbox=frozenset())
            open_ones = [number for number in range(len(world.got)) if number not in world.acknowledged]
            if open_ones:
                yield from self._takes(world, open_ones[0])
            return
        yield "the consumer dies", world._replace(consumer=("idle", 0))
        number = world.got[entry]
        acknowledged = world._replace(acknowledged=world.acknowledged | {entry}, consumer=("idle", 0))
        effects = list(world.effects)
        effects[number] += 1
        acted = world._replace(effects=(effects[0], effects[1]), consumer=("acting", entry))
        noted = world.inbox | {number}
        if where == "acting" or (where == "got" and self.rules.keeps_inbox and number in world.inbox):
            yield "the consumer acknowledges", acknowledged
        elif where == "got" and not self.rules.keeps_inbox:
            yield f"the consumer acts on e{number}", acted
        elif where == "got" and self.rules.inbox_commits_with_effect:
            yield f"the consumer notes e{number} and acts on it", acted._replace(inbox=noted)
        elif where == "got":
            yield f"the consumer acts on e{number}", acted._replace(consumer=("noting", entry))
        elif where == "noting":
            yield f"the consumer notes e{number}", world._replace(inbox=noted, consumer=("acting", entry))

    def _takes(self, world: World, entry: int) -> Iterator[Step]:
        got = world._replace(consumer=("got", entry))
        if self.rules.acknowledges_after_effect:
            yield f"the consumer gets entry {entry}", got
        else:
            acknowledged = world.acknowledged | {entry}
            yield f"the consumer acknowledges entry {entry} at once", got._replace(acknowledged=acknowledged)

    def broken(self, world: World) -> str:
        """Say which promise a world breaks."""
        if max(world.effects) > 1:
            return "the consumer acted twice"
        for number, event in enumerate(world.events):
            under_way = any(message[1] == number for message in world.wire)
            if event.state == "published" and number not in world.got and not under_way:
                return f"e{number} counts as published and never arrived"
            if event.state == "pending" and number in world.answered:
                return f"e{number} is sent again although the answer to its last attempt is on record"
        if SECOND in world.got and (FIRST not in world.got or world.got.index(FIRST) > world.got.index(SECOND)):
            return "order: e1 arrived before e0"
        everything = bool(world.got) and all(number in world.acknowledged for number in range(len(world.got)))
        if everything and world.effects == (0, 0) and world.consumer[0] == "idle":
            return "everything is acknowledged and nobody acted"
        return ""


def changed(world: World, number: int, event: Event) -> World:
    """Return the world with another event at a place."""
    events = list(world.events)
    events[number] = event
    return world._replace(events=tuple(events))


def at(world: World, place: int, dispatcher: Dispatcher) -> World:
    """Return the world with another dispatcher at a place."""
    dispatchers = list(world.dispatchers)
    dispatchers[place] = dispatcher
    return world._replace(dispatchers=tuple(dispatchers))


def trace(came: dict[World, Any], world: World) -> tuple[str, ...]:
    """Return what happened on the way to a world."""
    told = []
    while (before := came[world]) is not None:
        world, what = before
        told.append(what)
    return tuple(reversed(told))
