"""One job, one effect at a provider, rows of its own, and two workers that may die or stall anywhere.

It stands for ``effects.record.perform`` and what it calls: ``store.effects.intend`` (T1, the intent before the request),
the request between transactions, ``store.effects.record`` (T2, evidence), ``store.effects.answered`` (the provider was
asked) and ``store.succeed`` (T3, together with the handler's rows). The network delays, loses and reorders requests and
answers. The state of the effect is the product's own ``join`` of its sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from django_jobs.domain.effects import join
from django_jobs.domain.states import EffectState
from tests.model.found import Found, Step, put, search

CLEAR = ("confirmed", "rejected", "not_applied")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the provider can do, and what the worker does; a mutant switches one of the latter."""

    keys: bool = False
    caches_failures: bool = False
    can_be_asked: bool = True
    # The protocol.
    failure_is_fenced: bool = True
    success_is_fenced: bool = True
    rows_commit_with_success: bool = True
    intent_comes_first: bool = True
    key_is_the_effect_s: bool = True  # and not the attempt's
    waits_until_settled: bool = True  # before "not found" is believed
    looks_at_deadline: bool = True  # just before the request is written
    all_sends_count: bool = True  # and not the last one alone
    late_confirmation_counts: bool = True
    takes_new_keys: bool = False  # after all sends are known not to have been applied
    replay: str = ""  # keeps: the same job again; forgets: a fresh copy; empty: nobody replays
    claims: int = 3


class Send(NamedTuple):
    """One row, under the attempt that wrote it."""

    attempt: int
    outcome: str = "open"
    epoch: int = 0


class Worker(NamedTuple):
    """Where it stands, under which attempt, with which send and what it was told."""

    at: str = "idle"  # idle, decides, sends, waits, answered, asks, applied, wrote, failed
    attempt: int = 0
    send: int = 0
    answer: str = ""


class World(NamedTuple):
    """``wire``: requests under way as (send, key); ``memory``: what the provider remembers of a key."""

    job: str = "waiting"
    attempt: int = 0
    leased: bool = False
    sends: tuple[Send, ...] = ()
    wire: tuple[tuple[int, str], ...] = ()
    memory: tuple[tuple[str, str], ...] = ()
    applied: int = 0
    rows: int = 0
    workers: tuple[Worker, Worker] = (Worker(), Worker())


class Search:
    """Every order of events under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end."""
        return search(World(), self.steps, self.broken, is_end=lambda world: world.job in ("succeeded", "dead"))

    def known(self, world: World) -> EffectState:
        """The join of the sends."""
        outcomes = [None if send.outcome == "open" else send.outcome for send in world.sends]
        if not self.rules.all_sends_count and "confirmed" not in outcomes and None not in outcomes:
            outcomes = outcomes[-1:]
        return join(outcomes)

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next, each compared with what it left behind."""
        for step in self._all(world):
            yield step._replace(wrong=self._left(world, step.world))

    def _all(self, world: World) -> Iterator[Step[World]]:
        if world.job == "running":
            what = "the lease ends" if world.leased else "a reaper takes the job back"
            yield Step(what, world._replace(leased=False, job="running" if world.leased else "waiting"))
        if world.job == "dead" and self.rules.replay and world.attempt < self.rules.claims:
            sends = world.sends if self.rules.replay == "keeps" else ()
            yield Step("somebody replays the job", world._replace(job="waiting", sends=sends))
        yield from self._network(world)
        for place, worker in enumerate(world.workers):
            yield from self._worker(world, place, worker)

    def _network(self, world: World) -> Iterator[Step[World]]:
        rules, memory = self.rules, dict(world.memory)
        for number, key in sorted(set(world.wire)):
            left = list(world.wire)
            left.remove((number, key))
            gone = world._replace(wire=tuple(left))
            yield Step(f"request {number} is lost", gone)
            seen = memory.get(key) if rules.keys else None
            if seen != "refused":
                kept = tuple(sorted({**memory, key: "applied"}.items())) if rules.keys else world.memory
                after = gone._replace(applied=world.applied + (seen is None), memory=kept)
                yield from self._answer(after, number, f"the provider applies request {number} ({key})", "confirmed")
            if seen != "applied":
                caches = rules.keys and rules.caches_failures
                kept = tuple(sorted({**memory, key: "refused"}.items())) if caches else world.memory
                after = gone._replace(memory=kept)
                yield from self._answer(after, number, f"the provider rejects request {number} ({key})", "rejected")

    @staticmethod
    def _answer(world: World, number: int, told: str, answer: str) -> Iterator[Step[World]]:
        yield Step(f"{told}, its answer is lost", world)
        for place, worker in enumerate(world.workers):
            if worker.at == "waits" and worker.send == number:
                heard = worker._replace(at="answered", answer=answer)
                yield Step(f"{told}, attempt {worker.attempt} hears", at(world, place, heard))

    def _worker(self, world: World, place: int, worker: Worker) -> Iterator[Step[World]]:
        name = f"attempt {worker.attempt}"
        mine = world.job == "running" and world.attempt == worker.attempt
        if worker.at == "idle":
            yield from self._claim(world, place)
            return
        yield Step(f"{name} dies", at(world, place, Worker()))
        if worker.at == "decides":
            yield from self._decides(world, place, worker, mine)
        elif worker.at == "sends":
            yield self._writes(world, place, worker, mine)
        elif worker.at == "waits":
            yield Step(f"{name} waits no longer", at(world, place, worker._replace(at="answered", answer="unknown")))
        elif worker.at == "answered":
            yield self._records(world, place, worker)
        elif worker.at == "asks":
            yield from self._asks(world, place, worker, mine)
        elif worker.at == "failed":
            dead = "dead" if self.rules.replay and mine else "waiting"
            may = mine or not self.rules.failure_is_fenced
            after = at(world, place, Worker())
            yield Step(f"{name} {'fails' if may else 'may not fail'}", after._replace(job=dead) if may else after)
        else:
            yield self._finishes(world, place, worker, mine)

    def _claim(self, world: World, place: int) -> Iterator[Step[World]]:
        number = world.attempt + 1
        if world.job == "waiting" and number <= self.rules.claims:
            taken = world._replace(job="running", attempt=number, leased=True)
            yield Step(f"attempt {number} is claimed", at(taken, place, Worker("decides", number)))
        elif world.job == "waiting":
            yield Step("its budget is spent", world._replace(job="dead"))

    def _decides(self, world: World, place: int, worker: Worker, mine: bool) -> Iterator[Step[World]]:
        name, state = f"attempt {worker.attempt}", self.known(world)
        if not mine:
            yield Step(f"{name} may not decide", at(world, place, Worker()))
        elif state is EffectState.SUCCEEDED:
            yield Step(f"{name} skips what was applied", at(world, place, worker._replace(at="applied")))
        elif state in (EffectState.PLANNED, EffectState.REJECTED):
            last = world.sends[-1].epoch if world.sends else 0
            epoch = last + (self.rules.takes_new_keys and state is EffectState.REJECTED)
            yield self._intends(world, place, worker, epoch)
        else:
            yield Step(f"{name} must find out", at(world, place, worker._replace(at="asks")))

    def _intends(self, world: World, place: int, worker: Worker, epoch: int) -> Step[World]:
        sending = worker._replace(at="sends", send=len(world.sends))
        if not self.rules.intent_comes_first:
            return Step(f"attempt {worker.attempt} goes straight to its request", at(world, place, sending))
        sends = (*(closed(send) for send in world.sends), Send(worker.attempt, epoch=epoch))
        told = f"attempt {worker.attempt} commits its intent: send {sending.send} under key {epoch}"
        return Step(told, at(world._replace(sends=sends), place, sending))

    def _writes(self, world: World, place: int, worker: Worker, mine: bool) -> Step[World]:
        if self.rules.looks_at_deadline and not mine:
            late = worker._replace(at="answered", answer="rejected")
            return Step(f"attempt {worker.attempt} is past its deadline and writes nothing", at(world, place, late))
        epoch = world.sends[worker.send].epoch if worker.send < len(world.sends) else 0
        key = f"key {epoch}" if self.rules.key_is_the_effect_s else f"key of attempt {worker.attempt}"
        wire = tuple(sorted((*world.wire, (worker.send, key))))
        told = f"attempt {worker.attempt} writes request {worker.send} ({key})"
        return Step(told, at(world._replace(wire=wire), place, worker._replace(at="waits")))

    def _records(self, world: World, place: int, worker: Worker) -> Step[World]:
        sends = world.sends
        if not self.rules.intent_comes_first:
            sends = (*sends, Send(worker.attempt, worker.answer))
        elif worker.send < len(sends):
            stored = sends[worker.send]
            late = stored.outcome == "not_applied" and worker.answer == "confirmed"
            if stored.outcome not in CLEAR or (late and self.rules.late_confirmation_counts):
                sends = put(sends, worker.send, stored._replace(outcome=worker.answer))
        following = worker._replace(at="applied" if worker.answer == "confirmed" else "failed", answer="")
        told = f"attempt {worker.attempt} records: request {worker.send} {worker.answer}"
        return Step(told, at(world._replace(sends=sends), place, following))

    def _asks(self, world: World, place: int, worker: Worker, mine: bool) -> Iterator[Step[World]]:
        name, rules = f"attempt {worker.attempt}", self.rules
        if not mine:
            yield Step(f"{name} may not ask", at(world, place, Worker()))
        elif not rules.can_be_asked and rules.keys:
            yield self._intends(world, place, worker, world.sends[-1].epoch)
        elif not rules.can_be_asked:
            yield Step(f"{name} leaves it to a human", at(world, place, Worker())._replace(job="dead"))
        elif world.applied:
            over = ("open", "unknown", "not_applied") if rules.late_confirmation_counts else ("open", "unknown")
            after = world._replace(sends=concluded(world.sends, over, "confirmed"))
            yield Step(f"{name} asks: applied", at(after, place, worker._replace(at="applied")))
        elif rules.waits_until_settled and not settled(world, place):
            yield Step(f"{name} asks too early", at(world, place, Worker())._replace(job="waiting"))
        else:
            after = world._replace(sends=concluded(world.sends, ("open", "unknown"), "not_applied"))
            yield Step(f"{name} asks: not applied", at(after, place, worker._replace(at="decides")))

    def _finishes(self, world: World, place: int, worker: Worker, mine: bool) -> Step[World]:
        name, rules, freed = f"attempt {worker.attempt}", self.rules, at(world, place, Worker())
        may = mine or not rules.success_is_fenced
        if rules.rows_commit_with_success:
            done = freed._replace(job="succeeded", rows=world.rows + 1) if may else freed
            return Step(f"{name} {'commits' if may else 'may not commit'} its rows and its success", done)
        if worker.at == "applied":
            wrote = at(world._replace(rows=world.rows + 1), place, worker._replace(at="wrote"))
            return Step(f"{name} commits its rows", wrote)
        done = freed._replace(job="succeeded") if may else freed
        return Step(f"{name} {'succeeds' if may else 'may not succeed'}", done)

    def _left(self, before: World, after: World) -> str:
        """Say what a step took back, or what a new dead letter says that is not so."""
        if before.job == "succeeded" and after.job != "succeeded":
            return "a success was left"
        pairs = zip(before.sends, after.sends, strict=False)
        if any(old.outcome == "confirmed" != new.outcome for old, new in pairs):
            return "a confirmation was overwritten"
        calm = not after.wire and all(worker.at == "idle" for worker in after.workers)
        if after.job == "dead" != before.job and after.applied and calm and self.known(after) is EffectState.REJECTED:
            return "a dead letter says that nothing was applied, and it was"
        return ""

    def broken(self, world: World) -> str:
        """Say which promise a world breaks."""
        if world.applied > 1:
            return "the provider applied it twice"
        if world.rows > 1:
            return "the rows were committed twice"
        if world.job == "succeeded" and (not world.applied or world.rows != 1):
            return "a success without what it stands for"
        if world.job == "succeeded" and self.known(world) is not EffectState.SUCCEEDED:
            return "a success without evidence"
        return ""


def at(world: World, place: int, worker: Worker) -> World:
    """Return the world with another worker at a place."""
    workers = put(world.workers, place, worker)
    return world._replace(workers=(workers[0], workers[1]))


def closed(send: Send) -> Send:
    """Close a send without an answer as unclear."""
    return send._replace(outcome="unknown") if send.outcome == "open" else send


def concluded(sends: tuple[Send, ...], over: tuple[str, ...], outcome: str) -> tuple[Send, ...]:
    """Write what the provider's answer means for the sends with such outcomes."""
    return tuple(send._replace(outcome=outcome) if send.outcome in over else send for send in sends)


def settled(world: World, place: int) -> bool:
    """Say whether no request can be applied any more."""
    others = [worker for number, worker in enumerate(world.workers) if number != place]
    return not world.wire and not any(worker.at == "waits" for worker in others)
