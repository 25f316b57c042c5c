"""A dead letter whose effect was applied, two operators, and compensations that take the effect back.

It stands for ``operate.replay``, ``operate.discard``, ``operate.compensate`` (look at a plan, then submit it under the job's
lock), ``store.compensations`` (one that stands per effect; ``succeed_for`` settles the original in the completion) and
``store.effects.record`` for the request that takes back. All tries at it share one business key, and the provider
remembers keys. A worker may die with an answer in its hand; a human may judge wrongly; confirmations may come late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.found import Found, Step, put, search

SETTLED = ("discarded", "compensated", "succeeded")
NONE, OPEN, UNKNOWN, NOT_APPLIED, APPLIED = "none", "open", "unknown", "not applied", "applied"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is asked before a decision is carried out; a mutant switches one of them."""

    plans_are_compared: bool = True
    one_stands: bool = True  # at most one compensation of an effect is open or succeeded
    tries_share_a_key: bool = True
    replay_asks_for_compensations: bool = True
    discard_asks_for_compensations: bool = True
    void_asks_for_evidence: bool = True  # a compensation whose outcome is unclear cannot be given up
    late_confirmation_counts: bool = True
    settles_in_the_completion: bool = True  # and not in a transaction after it
    tries: int = 2  # compensations that may be asked for
    attempts: int = 2


class Try(NamedTuple):
    """One compensation and its job; ``unread``: the provider's answer in the hand of a worker that is gone."""

    state: str = "open"  # open, succeeded, void
    job: str = "queued"  # queued, running, sent, answered, dead, over
    attempts: int = 0
    unread: bool = False


class Operator(NamedTuple):
    """What somebody looked at, and what they mean to do."""

    action: str = ""
    plan: tuple[object, ...] = ()


class World(NamedTuple):
    """``known``: what the rows say of taking back, per key; ``memory``: what the provider knows; ``told``: evidence came."""

    job: str = "dead"
    generation: int = 1
    tries: tuple[Try, ...] = ()
    known: tuple[str, ...] = (NONE,)
    memory: frozenset[int] = frozenset()
    taken: int = 0
    told: bool = False
    misjudged: bool = False
    settling: bool = False
    operators: tuple[Operator, Operator] = (Operator(), Operator())


class Search:
    """Every order of events under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end."""
        return search(World(), self.steps, self.broken, is_end=lambda world: world.job in SETTLED)

    def key(self, number: int) -> int:
        """Return the business key of a try."""
        return 0 if self.rules.tries_share_a_key else number

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next."""
        for number, operator in enumerate(world.operators):
            yield from self._operator(world, number, operator)
            if not operator.action:
                break  # both are alike
        for number, one in enumerate(world.tries):
            if one.state == "open":
                yield from self._runs(world, number, one)
            if one.unread:
                yield self._late(world, number, one)
        if world.settling:
            yield Step("the original is settled", world._replace(job="compensated", settling=False))
            yield Step("the worker dies before that", world._replace(settling=False), fault=True)
        yield from self._original(world)

    # -- decisions

    def plan(self, world: World) -> tuple[object, ...]:
        """Everything that a yes depends on."""
        tries = tuple((one.state, one.job) for one in world.tries)
        return (world.job, world.generation, tries, world.known)

    def _operator(self, world: World, number: int, operator: Operator) -> Iterator[Step[World]]:
        if operator.action:
            yield Step(f"operator {number} turns away", asked(world, number, Operator()))
            yield self._submits(world, number, operator)
            return
        for action in ("replay", "discard", "take back", "give up", "judge"):
            if not self.refused(world, action):
                looked = asked(world, number, Operator(action, self.plan(world)))
                yield Step(f"operator {number} looks: {action}", looked)

    def refused(self, world: World, action: str) -> str:
        """Say why an action may not be carried out; empty: it may."""
        standing = [one for one in world.tries if one.state in ("open", "succeeded")]
        applied = self.rules.late_confirmation_counts and APPLIED in world.known
        last = world.tries[-1] if world.tries else None
        known = world.known[self.key(len(world.tries) - 1)] if world.tries else NONE
        if action == "judge":
            unclear = known in (OPEN, UNKNOWN) and last is not None and last.job == "dead"
            return "" if unclear and not world.misjudged else "nothing is unclear, or one wrong word is enough"
        if action == "give up":
            unclear = self.rules.void_asks_for_evidence and known in (OPEN, UNKNOWN, APPLIED)
            ok = last is not None and last.state == "open" and last.job == "dead" and not unclear
            return "" if ok and len(world.tries) < self.rules.tries else "no, or the end of the model"
        if world.job != "dead":
            return "it is no dead letter"
        if action == "take back":
            full = len(world.tries) >= self.rules.tries
            return "no" if full or (standing and self.rules.one_stands) else ""
        asks = (
            self.rules.replay_asks_for_compensations
            if action == "replay"
            else self.rules.discard_asks_for_compensations
        )
        if action == "replay" and world.generation > 1:
            return "once is enough for this model"
        return "it is taken back" if asks and (standing or applied) else ""

    def _submits(self, world: World, number: int, operator: Operator) -> Step[World]:
        told = f"operator {number} submits: {operator.action}"
        after = asked(world, number, Operator())
        same = operator.plan == self.plan(world)
        if self.refused(world, operator.action) or (self.rules.plans_are_compared and not same):
            return Step(f"{told}, refused", after)
        wrong = "" if same else "a decision was carried out on a plan that nobody saw"
        if operator.action in ("replay", "discard") and world.told and world.job == "dead":
            wrong = wrong or f"{operator.action}, although it is known to be taken back"
        return Step(told, self._done(after, operator.action), wrong=wrong)

    def _done(self, world: World, action: str) -> World:
        if action == "replay":
            return world._replace(job="queued", generation=world.generation + 1)
        if action == "discard":
            return world._replace(job="discarded")
        if action == "take back":
            known = world.known if self.rules.tries_share_a_key or not world.tries else (*world.known, NONE)
            return world._replace(tries=(*world.tries, Try()), known=known)
        number = len(world.tries) - 1
        if action == "judge":
            key = self.key(number)
            wrong = key in world.memory
            return world._replace(known=put(world.known, key, NOT_APPLIED), misjudged=world.misjudged or wrong)
        return with_try(world, number, state="void", job="over")

    # -- what happens by itself

    def _original(self, world: World) -> Iterator[Step[World]]:
        if world.job == "queued":
            yield Step("the replayed job is claimed", world._replace(job="running"))
        if world.job == "running":
            yield Step("the replayed job skips its effect and succeeds", world._replace(job="succeeded"))
            yield Step("the replayed job fails for good", world._replace(job="dead"), fault=True)

    def _runs(self, world: World, number: int, one: Try) -> Iterator[Step[World]]:
        name, key = f"compensation {number}", self.key(number)
        known = world.known[key]
        if one.job == "queued":
            yield Step(f"{name} is claimed", with_try(world, number, job="running", attempts=one.attempts + 1))
        elif one.job == "running" and known == APPLIED:
            yield from self._completes(world, number, f"{name} finds it taken back")
        elif one.job == "running":
            sent = with_try(world, number, job="sent")
            yield Step(f"{name} intends its request", sent._replace(known=put(world.known, key, OPEN)))
        elif one.job == "sent":
            taken = world.taken + (key not in world.memory)
            applied = world._replace(taken=taken, memory=world.memory | {key})
            yield Step(f"the provider takes it back for {name}", with_try(applied, number, job="answered"))
        elif one.job == "answered":
            heard = world._replace(known=put(world.known, key, APPLIED), told=True)
            yield from self._completes(heard, number, f"{name} records the answer")
        elif one.job == "dead":
            again = with_try(world, number, job="queued", attempts=0)
            yield Step(f"{name} is replayed", again)
        if one.job in ("running", "sent", "answered"):
            unclear = put(world.known, key, UNKNOWN) if known == OPEN else world.known
            job = "dead" if one.attempts >= self.rules.attempts else "queued"
            gone = with_try(world, number, job=job, unread=one.unread or one.job == "answered")
            yield Step(f"the attempt of {name} is lost", gone._replace(known=unclear), fault=True)

    def _completes(self, world: World, number: int, told: str) -> Iterator[Step[World]]:
        done = with_try(world, number, state="succeeded", job="over")
        settled = world.job == "dead"
        if self.rules.settles_in_the_completion:
            yield Step(f"{told} and completes", done._replace(job="compensated") if settled else done)
        else:
            yield Step(f"{told} and completes", done._replace(settling=settled))

    def _late(self, world: World, number: int, one: Try) -> Step[World]:
        key = self.key(number)
        takes = self.rules.late_confirmation_counts or world.known[key] in (OPEN, UNKNOWN)
        known = put(world.known, key, APPLIED) if takes else world.known
        late = with_try(world, number, unread=False)._replace(known=known, told=True)
        return Step(f"the late confirmation of compensation {number} arrives", late)

    def broken(self, world: World) -> str:
        """Say which promise a world breaks."""
        if world.taken > 1:
            return "it was taken back twice"
        if sum(one.state in ("open", "succeeded") for one in world.tries) > 1:
            return "two compensations of one effect stand"
        standing = any(one.state in ("open", "succeeded") for one in world.tries)
        if standing and world.job in ("queued", "running"):
            return "the job runs while its effect is taken back"
        if standing and world.job == "discarded":
            return "it was discarded while its effect is taken back"
        if world.job == "succeeded" and world.taken and not world.misjudged:
            return "a success on what was taken back"
        return ""


def asked(world: World, number: int, operator: Operator) -> World:
    """Return the world with another operator at a place."""
    operators = put(world.operators, number, operator)
    return world._replace(operators=(operators[0], operators[1]))


def with_try(world: World, number: int, **changes: object) -> World:
    """Return the world with a changed compensation."""
    return world._replace(tries=put(world.tries, number, world.tries[number]._replace(**changes)))  # type: ignore[arg-type]
