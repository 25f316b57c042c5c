"""The room for a job that must run alone on its worker: every order of messages, claims, ends and deaths.

The supervisor's and the children's sides are the product's own. Held: while such a job runs, no other child runs
anything; whatever happens, everybody can start work again and the waiting job gets its turn; a dead child leaks nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from django_jobs.worker.link import Order, Word
from django_jobs.worker.room import Room, Seat, Stand

SLOTS = 2


class Child(NamedTuple):
    """One child: its number, what it runs ('' nothing, 'work', 'lonely'), its seat, and the two directions of its line."""

    number: int
    runs: str
    seat: tuple[Any, ...]
    orders: tuple[tuple[Order, int], ...]
    words: tuple[tuple[Word, int], ...]


class World(NamedTuple):
    """Slots may be empty; ``lonely`` jobs wait for the whole worker; ``deaths`` may still happen.

    ``elsewhere`` jobs are run by another worker, and ``moves`` of them may still go there.
    """

    children: tuple[Child | None, ...]
    room: tuple[Any, ...]
    lonely: int
    deaths: int
    started: int
    elsewhere: int = 0
    moves: int = 0


SEATS: list[type[Seat]] = [Seat]  # a test may put a wrong one here
FRESH = (Stand.FREE, 0, False, 0, 0)


def seat_of(state: tuple[Any, ...], told: list[tuple[Word, int]]) -> Seat:
    """Rebuild the child's side."""

    def tell(word: Word, number: int) -> bool:
        told.append((word, number))
        return True

    seat = SEATS[0](tell)
    seat._stand, seat._number, seat._used, seat._given_back, seat._to_end = state
    return seat


def state_of(seat: Seat) -> tuple[Any, ...]:
    """Take the child's side apart."""
    return (seat._stand, seat._number, seat._used, seat._given_back, seat._to_end)


class Play:
    """One world on the table: rebuilt, changed by one step, and taken apart again."""

    def __init__(self, world: World, make: type[Room]) -> None:
        self.children = {child.number: child for child in world.children if child}
        self.slots = [child.number if child else 0 for child in world.children]
        self.lonely, self.deaths, self.started = world.lonely, world.deaths, world.started
        self.elsewhere, self.moves = world.elsewhere, world.moves
        self.room = make(self.send, lambda: list(self.children), patience=1e9)
        self.room._number, self.room.holder, self.room._granted, quiet = world.room
        self.room._quiet = set(quiet)
        self.room._give_up_at = 1e18

    def send(self, number: int, order: Order, hold: int) -> None:
        """Put an order into a child's line."""
        child = self.children.get(number)
        if child:
            self.children[number] = child._replace(orders=(*child.orders, (order, hold)))

    def done(self) -> World:
        """Take it apart; numbers are made small again, so that equal worlds look equal."""
        children = [self.children.get(number) for number in self.slots]
        return World(
            tuple(children),
            (self.room._number, self.room.holder, self.room._granted, tuple(sorted(self.room._quiet))),
            self.lonely,
            self.deaths,
            self.started,
            self.elsewhere,
            self.moves,
        )


def turn(play: Play, number: int, *, claims: bool) -> None:
    """Let a child's loop do one round, as its claiming does: heed the room, then claim or not."""
    child = play.children[number]
    told: list[tuple[Word, int]] = []
    seat = seat_of(child.seat, told)
    stand = seat.stand(busy=bool(child.runs))
    runs = child.runs
    if child.runs:
        pass
    elif stand is Stand.HELD:
        if not play.lonely:
            seat.give_back()
    elif stand is Stand.GRANTED:
        if play.lonely:
            seat.use()
            runs, play.lonely = "lonely", play.lonely - 1
        else:
            seat.give_back()
    else:
        if play.lonely:
            seat.ask()
        if claims:
            runs = "work"
    words = child.words
    for word in told:
        if word not in words:  # the same word again tells nothing new
            words = (*words, word)
    play.children[number] = child._replace(runs=runs, seat=state_of(seat), words=words)


def follow(play: Play, number: int) -> None:
    """Let a child's other thread take one order."""
    child = play.children[number]
    (order, hold), *rest = child.orders
    seat = seat_of(child.seat, [])
    seat.follow(order, hold)
    play.children[number] = child._replace(seat=state_of(seat), orders=tuple(rest))


def hear(play: Play, number: int) -> None:
    """Let the supervisor take one word."""
    child = play.children[number]
    (word, hold), *rest = child.words
    play.children[number] = child._replace(words=tuple(rest))
    play.room.hear(number, word, hold)


def die(play: Play, number: int) -> None:
    """Kill a child: what it still said is heard, its job waits again if it must run alone."""
    while play.children[number].words:
        hear(play, number)
    child = play.children.pop(number)
    play.slots[play.slots.index(number)] = 0
    play.deaths -= 1
    play.lonely += child.runs == "lonely"
    play.room.left(number)


def start(play: Play) -> None:
    """Start a child in the first empty slot."""
    play.started += 1
    play.slots[play.slots.index(0)] = play.started
    play.children[play.started] = Child(play.started, "", FRESH, (), ())


def steps(world: World, make: type[Room]) -> list[tuple[str, World]]:
    """Return everything that can happen next."""
    found: list[tuple[str, World]] = []

    def step(label: str, act: Callable[[Play], None]) -> None:
        play = Play(world, make)
        act(play)
        found.append((label, play.done()))

    for child in filter(None, world.children):
        _steps_of(child, step, may_die=bool(world.deaths))
    if None in world.children and world.room[1] is None:
        step("a child is started", start)
    if world.lonely and world.moves:
        step("another worker takes it", lambda play: move(play, 1))
    if world.elsewhere:
        step("another worker loses it", lambda play: move(play, -1))
    return found


def _steps_of(child: Child, step: Callable[[str, Callable[[Play], None]], None], *, may_die: bool) -> None:
    n = child.number
    if child.runs:
        step(f"{n} ends its {child.runs}", lambda p, n=n: end(p, n))  # type: ignore[misc]
    for claims in (False, True):
        step(f"{n} does a round", lambda p, n=n, c=claims: turn(p, n, claims=c))  # type: ignore[misc]
    if child.orders:
        step(f"{n} takes {child.orders[0]}", lambda p, n=n: follow(p, n))  # type: ignore[misc]
    if child.words:
        step(f"{n} is heard: {child.words[0]}", lambda p, n=n: hear(p, n))  # type: ignore[misc]
    if may_die:
        step(f"{n} dies", lambda p, n=n: die(p, n))  # type: ignore[misc]


def move(play: Play, count: int) -> None:
    """Let another worker take the job that must run alone, or lose it again."""
    play.lonely, play.elsewhere = play.lonely - count, play.elsewhere + count
    play.moves -= count > 0


def end(play: Play, number: int) -> None:
    """End what a child runs."""
    play.children[number] = play.children[number]._replace(runs="")


def problem(world: World) -> str:
    """Say what is wrong in a world."""
    running = [child.runs for child in world.children if child and child.runs]
    return "a job has company that must run alone on its worker" if "lonely" in running and len(running) > 1 else ""


def search(
    make: type[Room] = Room, *, lonely: int = 1, deaths: int = 0, moves: int = 0, holds: int = 3
) -> tuple[int, str, list[str]]:
    """Visit every world up to a number of holds; return how many, the first problem, and its trace."""
    children = tuple(Child(number, "", FRESH, (), ()) for number in range(1, SLOTS + 1))
    first = World(children, (0, None, False, ()), lonely, deaths, SLOTS, 0, moves)
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    before: dict[World, list[World]] = {}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        for label, following in steps(world, make):
            if following.room[0] > holds:
                continue
            if following.deaths == world.deaths:
                before.setdefault(following, []).append(world)
            if following in came_from:
                continue
            came_from[following] = (world, label)
            waiting.append(following)
            if found := problem(following):
                return len(came_from), found, trace(came_from, following)
    good = [world for world in came_from if is_at_rest(world)]
    seen = set(good)
    while good:
        for world in before.get(good.pop(), ()):
            if world not in seen:
                seen.add(world)
                good.append(world)
    left = [world for world in came_from if world not in seen and world.room[0] < holds]
    stuck = next((world for world in left if world.room[1] is not None), left[0] if left else None)
    return len(came_from), "" if stuck is None else "the room leaks", trace(came_from, stuck) if stuck else []


def is_at_rest(world: World) -> bool:
    """Say whether all that had to run alone ran, every child is there, and every child is free."""
    return (
        not world.lonely
        and world.room[1] is None
        and all(
            child and not child.runs and not child.orders and child.seat[0] is Stand.FREE for child in world.children
        )
    )


def trace(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    """Return the steps that led to a world."""
    labels = []
    while (step := came_from[world]) is not None:
        world, label = step
        labels.append(label)
    return labels[::-1]


@pytest.fixture(autouse=True)
def _ask_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobs.worker.room.ASK_EVERY", float("-inf"))


@pytest.mark.parametrize("faults", [{"deaths": 1}, {"moves": 1, "holds": 2}], ids=["a-death", "run-elsewhere"])
def test_nobody_disturbs_and_nobody_waits_for_ever(faults: dict[str, int]) -> None:
    """One job that needs the whole worker, and a death or another worker that takes the job, at any moment."""
    worlds, found, steps_to_it = search(**faults)

    print(f"\n{worlds} worlds")
    assert (found, steps_to_it) == ("", [])
    assert worlds > 500


@pytest.mark.long
def test_all_faults_together() -> None:
    """The same with both."""
    worlds, found, steps_to_it = search(deaths=1, moves=1)

    print(f"\n{worlds} worlds")
    assert (found, steps_to_it) == ("", [])


class _NumbersIgnored(Room):
    def hear(self, child: int, word: Word, number: int) -> None:
        super().hear(child, word, self._number)


class _HolderForgotten(Room):
    def left(self, child: int) -> None:
        if child != self.holder:
            super().left(child)


class _DeadStayBusy(Room):
    def _grant_if_quiet(self) -> None:
        if self._quiet.issuperset(range(1, SLOTS + 1)):
            super()._grant_if_quiet()


class _GrantsAtOnce(Room):
    def _reserve(self, child: int) -> None:
        super()._reserve(child)
        if self.holder == child:
            self._quiet.update(self._children())
            self._grant_if_quiet()


class _TakesLateGrants(Seat):
    def follow(self, order: Order, number: int) -> None:
        self._given_back = 0
        super().follow(order, number)


class _QuietWhileBusy(Seat):
    def stand(self, *, busy: bool) -> Stand:
        return super().stand(busy=False)


class _ForgetsToGiveBack(Seat):
    def give_back(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("mutant", [_NumbersIgnored, _HolderForgotten, _DeadStayBusy, _GrantsAtOnce])
def test_wrong_supervisors_are_caught(mutant: type[Room]) -> None:
    """Answers to earlier holds, dead holders, dead others, and a grant that does not wait."""
    _, found, steps_to_it = search(mutant, deaths=1)

    print(f"\n{mutant.__name__}: {found} after {'; '.join(steps_to_it)}")
    assert found
    assert steps_to_it


@pytest.mark.parametrize("mutant", [_TakesLateGrants, _QuietWhileBusy, _ForgetsToGiveBack])
def test_wrong_children_are_caught(mutant: type[Seat], monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant that comes after the room was given back, quiet while something runs, and a room that is kept."""
    monkeypatch.setattr("tests.model.test_room.SEATS", [mutant])

    _, found, steps_to_it = search(moves=1)

    print(f"\n{mutant.__name__}: {found} after {'; '.join(steps_to_it)}")
    assert found
    assert steps_to_it
