"""A state search that drives the effect rules through every interleaving of two jobs that mean one business act.

Each job has two attempts and may crash or stall at each step; a stalled attempt goes on as a ghost: it may still write
its request, and its evidence arrives late. The provider applies, rejects or loses requests and may forget its keys; an
operator cancels, discards, compensates and judges. The search is exhaustive within these bounds, and every wrong rule
below must be caught by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import pytest

from django_jobs.domain import effects, facts, reconcile
from django_jobs.domain.effects import (
    Action,
    Dedupe,
    EffectFacts,
    Guarantees,
    Meaning,
    PastSend,
    Reconciliation,
    Verdict,
)
from django_jobs.domain.states import EffectState
from tests.unit.domain.effect_worlds import (
    ENDED,
    UNFINISHED,
    Job,
    Send,
    World,
    put,
    retried,
    ruled_out,
    tidied,
    way,
    with_job,
)

pytestmark = [pytest.mark.usefixtures("untraced"), pytest.mark.slow]

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


class Provider(NamedTuple):
    """What the provider can do, whether the second job asks with other bytes, and where the search ends."""

    keys: bool = False
    caches: bool = False
    forgets: bool = False
    asks: bool = False
    other_bytes: bool = False
    most_sends: int = 2

    @property
    def guarantees(self) -> Guarantees:
        """Its promise, as an operation declares it."""
        return Guarantees(
            dedupe=Dedupe.KEY if self.keys else Dedupe.NONE,
            key_lifetime=DAY if self.keys else None,
            caches_failures=self.caches,
            can_reconcile=self.asks,
        )


KEYS = Provider(keys=True)
CACHES = Provider(keys=True, caches=True)
FORGETS = Provider(keys=True, forgets=True, asks=True)
ASKS = Provider(asks=True)
MUTE = Provider()
PROVIDERS = {
    "keys": KEYS,
    "caches failures": CACHES,
    "forgets keys, can be asked": FORGETS,
    "forgets keys, cannot be asked": FORGETS._replace(asks=False),
    "no keys, can be asked": ASKS,
    "nothing": MUTE,
}

Step = tuple[str, bool, str, World]  # label, is it a fault, what is wrong with it, the world after it


class Search:
    """Breadth first over all worlds of one provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.guarantees = provider.guarantees
        self.decide = lru_cache(maxsize=None)(self._decide)

    def bytes_of(self, job: int) -> str:
        """The digest of what a job asks for."""
        return f"bytes-{job if self.provider.other_bytes else 0}"

    def facts(self, world: World, job: int, *, asked: bool = False) -> EffectFacts:
        """What T1 would read from the rows."""
        settled = not any(send.wire in ("planned", "flying") for send in world.sends)
        old = [NOW - 2 * DAY if send.epoch <= world.forgotten else NOW - MINUTE for send in world.sends]
        return EffectFacts(
            guarantees=self.guarantees,
            now=NOW,
            call=MINUTE / 6,
            digest=self.bytes_of(job),
            stored_digest=self.bytes_of(world.sends[-1].job) if world.sends else None,
            settled_at=NOW - MINUTE if settled else NOW + MINUTE,
            sends=tuple(
                PastSend(
                    number=n,
                    started_at=old[n],
                    outcome=s.outcome,
                    epoch=s.epoch,
                    digest=self.bytes_of(s.job),
                    key=f"key-{s.epoch}",
                )
                for n, s in enumerate(world.sends)
            ),
            resolved="found" if world.found else "",
            owner_is_me=world.owner == job,
            owner_unfinished=world.jobs[world.owner].state in UNFINISHED,
            compensation=world.compensation,  # type: ignore[arg-type]
            asked_since_last_send=asked,
        )

    def _decide(self, world: World, job: int) -> tuple[str, int]:
        """Decide as T1 does, and ask the provider where the rules say so: (what, key epoch)."""
        known = self.facts(world, job)
        decision = effects.decide(known)
        if decision.action is not Action.RECONCILE:
            return decision.action, decision.epoch
        verdict = Verdict.SUCCEEDED if world.applied else Verdict.NOT_FOUND
        answer = reconcile.after_reconcile(known, Reconciliation(verdict))
        if answer.meaning is not Meaning.DECIDE:
            return answer.meaning, 0
        again = effects.decide(replace(known, asked_since_last_send=True))
        return again.action, again.epoch

    # ---- what can happen

    def steps(self, world: World) -> Iterator[Step]:
        """Yield everything that can happen next."""
        if self.provider.forgets and world.forgotten < 0 and world.memory and self.calm(world):
            newest = max(send.epoch for send in world.sends)
            yield "the provider forgets its keys", True, "", world._replace(memory=(), forgotten=newest)
        for number, send in enumerate(world.sends):
            yield from self.wire_steps(world, number, send)
        for number in (0, 1):
            yield from self.job_steps(world, number)
            yield from self.operator_steps(world, number)

    @staticmethod
    def calm(world: World) -> bool:
        """Whether no request can be applied any more."""
        return not any(send.wire in ("planned", "flying") for send in world.sends)

    def wire_steps(self, world: World, number: int, send: Send) -> Iterator[Step]:
        """A request is written, applied, rejected, lost or answered."""
        job = world.jobs[send.job]
        live = job.state == "running" and job.step == "call" and job.send == number
        if send.wire == "planned":
            yield "written", False, "", put(world, number, send._replace(wire="flying"))
            yield "not written: too late", False, "", self.evidence(world, number, "not_applied", live)
        elif send.wire == "flying":
            yield from self.provider_steps(world, number, send)
        elif send.wire in ("applied", "refused"):
            outcome = "confirmed" if send.wire == "applied" else "rejected"
            yield f"evidence: {outcome}", False, "", self.evidence(world, number, outcome, live)
        if live and send.wire != "planned":
            timed_out = put(world, number, send._replace(outcome="unknown" if send.outcome == "open" else send.outcome))
            yield "timed out", False, "", with_job(timed_out, send.job, step="failed")

    def provider_steps(self, world: World, number: int, send: Send) -> Iterator[Step]:
        """The provider meets a request: it applies it unless it remembers the key."""
        remembered = dict(world.memory).get(send.epoch) if self.provider.keys else None
        memory = world.memory
        if remembered != "refused":
            applied = world.applied + (remembered is None)
            bad = "the provider applied one act twice" if applied > 1 else ""
            if self.provider.keys:
                memory = tuple(sorted({**dict(memory), send.epoch: "applied"}.items()))
            after = world._replace(applied=min(applied, 2), memory=memory)
            yield "the provider applies or repeats", False, bad, put(after, number, send._replace(wire="applied"))
        if remembered != "applied":
            if self.provider.caches:
                memory = tuple(sorted({**dict(world.memory), send.epoch: "refused"}.items()))
            after = world._replace(memory=memory if self.provider.caches else world.memory)
            yield "the provider rejects", False, "", put(after, number, send._replace(wire="refused"))
        yield "lost on the way", True, "", put(world, number, send._replace(wire="gone"))

    def evidence(self, world: World, number: int, outcome: str, live: bool) -> World:
        """Record what a request taught; late evidence is taken too, and only confirmation overrides a judgement."""
        send = world.sends[number]
        news = send.outcome in ("open", "unknown") or (outcome == "confirmed" and send.outcome != "confirmed")
        world = put(world, number, send._replace(outcome=outcome if news else send.outcome, wire="gone"))
        if news and outcome == "rejected":
            world = self.settled(world, number)
        step = {"confirmed": "done", "rejected": "rejected", "not_applied": "failed"}[outcome]
        return with_job(world, send.job, step=step) if live else world

    def settled(self, world: World, number: int) -> World:
        """Apply what a rejection says about the other requests with its key; only some providers remember theirs."""
        known = self.facts(world, world.sends[number].job)
        numbers = reconcile.settled_by_rejection(
            known.sends,
            answered=number,
            remembered=self.provider.caches,
            guarantees=self.guarantees,
            calm_at=known.calm_at,
        )
        for each in numbers:
            world = put(world, each, world.sends[each]._replace(outcome="rejected"))
        return world

    def job_steps(self, world: World, number: int) -> Iterator[Step]:
        """A job is enqueued, claimed, decides, crashes, stalls or ends."""
        job = world.jobs[number]
        if job.state == "new" and (number == 0 or world.jobs[0].state != "new"):
            yield "enqueued", False, "", with_job(world, number, state="due")
        elif job.state == "due":
            yield (
                "claimed",
                False,
                "",
                with_job(world, number, state="running", attempts=job.attempts + 1, step="start"),
            )
        elif job.state == "asleep":
            yield "wakes", False, "", with_job(world, number, state="running", step="start")
            yield "waited too long", True, "", with_job(world, number, state="dead")
        elif job.state == "running":
            yield from self.running_steps(world, number, job)

    def running_steps(self, world: World, number: int, job: Job) -> Iterator[Step]:
        """What an attempt does, and how it dies."""
        dead_wires = tuple(
            send._replace(wire="gone") if send.job == number and send.wire != "flying" else send for send in world.sends
        )
        yield "crashes", True, "", retried(world._replace(sends=dead_wires), number)
        if job.step == "start":
            yield from self.decided(world, number)
        elif job.step == "call":
            yield "stalls past its lease", True, "", retried(world, number)
        elif job.step == "done":
            yield from self.finished(world, number, job)
        else:
            yield "attempt failed", False, "", retried(world, number)
            if job.step == "rejected":
                yield "permanent rejection", False, "", with_job(world, number, state="dead")

    def decided(self, world: World, number: int) -> Iterator[Step]:
        """T1: apply the decision to the rows."""
        action, epoch = self.decide(world, number)
        if action in (Action.SEND, Action.SEND_NEW_EPOCH):
            yield self.sent(world, number, epoch)
        elif action in (Action.SKIP, Action.ADOPT):
            yield action, False, "", with_job(world, number, step="done", adopted=action == Action.ADOPT)
        elif action == Meaning.APPLIED:
            yield "found", False, "", with_job(world._replace(found=True), number, step="done")
        elif action == Meaning.NOT_APPLIED:
            yield "ruled out", False, "", ruled_out(world)
        elif action in (Action.WAIT, Meaning.WAIT):
            yield "snoozes", False, "", with_job(world, number, state="asleep")
        else:
            own = world.sends and world.compensation == "none" and all(send.job == number for send in world.sends)
            bad = "a job is refused because of its own send" if own and action == Action.REUSED else ""
            yield f"review: {action}", False, bad, with_job(world, number, state="dead")

    def sent(self, world: World, number: int, epoch: int) -> Step:
        """Write the intent: an older open send becomes unknown, and the sender owns the row."""
        if len(world.sends) >= self.provider.most_sends:
            return "end of the model", False, "", with_job(world, number, state="dead")
        closed = tuple(s._replace(outcome="unknown") if s.outcome == "open" else s for s in world.sends)
        sends = (*closed, Send(number, "open", "planned", epoch))
        after = world._replace(sends=sends, owner=number)
        return f"sends under epoch {epoch}", False, "", with_job(after, number, step="call", send=len(closed))

    def finished(self, world: World, number: int, job: Job) -> Iterator[Step]:
        """T3: the job succeeds, unless the receipt it adopted is being taken back."""
        state = self.facts(world, number).state
        if job.adopted and not effects.may_adopt(state=state, compensation=world.compensation):
            yield "adopted receipt is compensated: review", False, "", with_job(world, number, state="dead")
            return
        yield "succeeds", False, self.wrong_success(world, number), with_job(world, number, state="succeeded")

    def wrong_success(self, world: World, number: int) -> str:
        """What would make a success a lie, judged from the facts and not from the rules."""
        if not world.applied:
            return "a job succeeded and its act never happened"
        if world.compensation != "none":
            return "a job succeeded on a receipt that is compensated"
        mine = self.bytes_of(number)
        if not any(self.bytes_of(s.job) == mine and s.outcome not in ("rejected", "not_applied") for s in world.sends):
            return "a job succeeded on the receipt of another request"
        return ""

    def operator_steps(self, world: World, number: int) -> Iterator[Step]:
        """What a human does."""
        job = world.jobs[number]
        if job.state in ("due", "asleep"):
            ruled = all(s.outcome in ("rejected", "not_applied") for s in world.sends if s.job == number)
            yield "cancelled", True, "", with_job(world, number, state="cancelled" if ruled else "dead")
        if job.state == "dead":
            yield "discarded", True, "", with_job(world, number, state="discarded")
        if world.owner != number:
            return
        known = self.facts(world, number)
        if job.state in ENDED and known.state is EffectState.SUCCEEDED and world.compensation != "succeeded":
            following = "open" if world.compensation == "none" else "succeeded"
            yield f"compensation {following}", True, "", world._replace(compensation=following)
        if not world.applied and not effects.refuse_ruling_out(known):
            yield "a human says: not applied", True, "", ruled_out(world)

    # ---- the search

    def first_violation(self) -> tuple[int, str, list[str]]:
        """Return (worlds seen, what is wrong or '', the shortest way there)."""
        start = World()
        parents: dict[World, tuple[World, str] | None] = {start: None}
        back: dict[World, list[World]] = {}
        waiting = deque([start])
        while waiting:
            world = waiting.popleft()
            for label, fault, bad, after in self.steps(world):
                after = tidied(after)
                if bad:
                    return len(parents), bad, [*way(parents, world), label]
                if after not in parents:
                    parents[after] = (world, label)
                    waiting.append(after)
                if not fault:
                    back.setdefault(after, []).append(world)
        return len(parents), *self.stuck(parents, back)

    @staticmethod
    def stuck(parents: dict[World, tuple[World, str] | None], back: dict[World, list[World]]) -> tuple[str, list[str]]:
        """Find a world from which, without further faults, some job never ends."""
        good = [world for world in parents if all(job.state in ENDED for job in world.jobs)]
        seen = set(good)
        while good:
            for before in back.get(good.pop(), ()):
                if before not in seen:
                    seen.add(before)
                    good.append(before)
        lost = next((world for world in parents if world not in seen), None)
        return ("a job waits for ever", way(parents, lost)) if lost else ("", [])


def _case(name: str) -> object:
    return pytest.param(PROVIDERS[name], id=name)


@pytest.mark.parametrize("other_bytes", [False, True], ids=["same bytes", "other bytes"])
@pytest.mark.parametrize("provider", [_case(name) for name in PROVIDERS])
def test_rules_hold_in_every_interleaving(provider: Provider, other_bytes: bool) -> None:
    """No act is applied twice, no success is a lie and no job waits for ever, whatever happens in whatever order."""
    worlds, bad, path = Search(provider._replace(other_bytes=other_bytes)).first_violation()
    assert bad == "", path
    assert worlds > 5000


def without(rule: str) -> dict[str, Any]:
    """The rules without one of them."""
    return {"_RULES": tuple(each for each in effects._RULES if each.__name__ != rule)}


def instead_of(rule: str, wrong: Callable[[EffectFacts], effects.Decision | None]) -> dict[str, Any]:
    """The rules with one of them replaced."""
    return {"_RULES": tuple(wrong if each.__name__ == rule else each for each in effects._RULES)}


def send_anyway(known: EffectFacts) -> effects.Decision | None:
    """Send although another job's send is unclear."""
    return None if known.owner_is_me else effects.Decision(action=Action.SEND, why="wrong", epoch=known.epoch)


def always_wait(known: EffectFacts) -> effects.Decision | None:
    """Wait for another job whatever became of it."""
    return None if known.owner_is_me else effects._wait(known, "wrong")


def new_key_at_once(known: EffectFacts) -> effects.Decision | None:
    """Take a new key although the old one may have been applied."""
    return effects.Decision(action=Action.SEND_NEW_EPOCH, why="wrong", epoch=known.epoch + 1)


def ambiguous_is_rejected(known: EffectFacts) -> effects.Decision | None:
    """Send again after an unknown outcome as if it had been a rejection."""
    unclear = known.state in (EffectState.PLANNED, EffectState.REJECTED, EffectState.AMBIGUOUS)
    return effects.Decision(action=Action.SEND, why="wrong", epoch=known.epoch) if unclear else None


def last_send_decides(outcomes: Any, *, resolved: bool = False, abandoned: bool = False) -> EffectState:
    """Look at the newest send only."""
    return facts_join(list(outcomes)[-1:], resolved=resolved, abandoned=abandoned)


facts_join = facts.join


def every_rejection_settles(sends: Any, *, answered: int, **_: Any) -> frozenset[int]:
    """Take any rejection for one that the provider remembers."""
    return rule_of_rejection(sends, **{**_, "answered": answered, "remembered": True})


rule_of_rejection = reconcile.settled_by_rejection

MUTANTS: list[tuple[str, Any, dict[str, Any], Provider]] = [
    ("adopts what is compensated", effects, without("_compensated") | {"may_adopt": lambda **_: True}, KEYS),
    ("completion does not look again", effects, {"may_adopt": lambda **_: True}, KEYS),
    ("digests are not compared", effects, without("_changed"), KEYS._replace(other_bytes=True)),
    ("sends while another job's send is unclear", effects, instead_of("_foreign", send_anyway), MUTE),
    ("waits for an owner that has ended", effects, instead_of("_foreign", always_wait), MUTE),
    ("takes a new key while the old one is unclear", effects, instead_of("_protected", new_key_at_once), KEYS),
    ("ambiguous counts as rejected", effects, instead_of("_known_not_applied", ambiguous_is_rejected), MUTE),
    ("the last send decides", facts, {"join": last_send_decides}, FORGETS._replace(most_sends=3)),
    ("'not found' is final at once", facts.EffectFacts, {"visible_at": property(lambda self: self.now)}, ASKS),
    (
        "keys never expire",
        facts.EffectFacts,
        {"key_expired": property(lambda self: False)},
        FORGETS._replace(asks=False),
    ),
    ("every provider has keys", facts.EffectFacts, {"key_protects": property(lambda self: True)}, MUTE),
    (
        "every rejection settles its key",
        reconcile,
        {"settled_by_rejection": every_rejection_settles},
        KEYS._replace(other_bytes=True, most_sends=3),
    ),
    ("a human may judge at any time", effects, {"refuse_ruling_out": lambda known: ""}, MUTE),
]


@pytest.mark.parametrize(("name", "where", "wrong", "provider"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_every_wrong_rule_is_caught(
    name: str, where: Any, wrong: dict[str, Any], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search finds a counterexample for each wrong rule, so it would find one in the real ones."""
    for attribute, value in wrong.items():
        monkeypatch.setattr(where, attribute, value)
    _, bad, path = Search(provider).first_violation()
    assert bad, name
    assert path
