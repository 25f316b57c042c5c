"""Faults in the kit's own process: what a test makes happen when the code of a worker comes to a point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Self

from django_jobs import faults
from django_jobs.exceptions import KitError
from django_jobs.faults.kinds import InjectedError
from django_jobs.testing import running
from django_jobs.testing.breaking import Phase
from django_jobs.testing.kit import JobsKit
from django_jobs.testing.life import current
from django_jobs.testing.mortal import Run
from django_jobs.testing.reports import AttemptReport
from django_jobs.testing.stage import Actor, current_actor

Act = Callable[[Run, str], object]
NOT_HERE = object()  # what a fault returns that cannot happen where it was reached


class Armed:
    """One fault: what happens when a point is reached for the ``nth`` time from now on."""

    def __init__(self, what: str, point: str, act: Act, *, nth: int) -> None:
        if not isinstance(nth, int) or nth < 1:
            msg = f"A fault happens at the nth time, from 1 on, not at {nth!r}."
            raise KitError(msg)
        self.what, self.point, self.nth = what, faults.checked(point), nth
        self.fired = False
        self._act = act
        self._left = nth

    def reached(self, point: str, run: Run, using: str) -> None:
        """Count, and act if this is the time."""
        if point != self.point or self.fired:
            return
        self._left -= 1
        if self._left == 0:
            self.fired = True
            if self._act(run, using) is NOT_HERE:
                self.fired = False

    def __str__(self) -> str:
        return f"{self.what}({self.point!r}{f', nth={self.nth}' if self.nth > 1 else ''})"


class Pause:
    """An attempt that stands still at a point, or will: the rest of the world goes on until :meth:`resume`."""

    def __init__(self, kit: JobsKit) -> None:
        self._kit = kit
        self._actor: Actor[running.Turn] | None = None

    @property
    def is_paused(self) -> bool:
        """Whether an attempt stands still here now."""
        return self._actor is not None and not self._actor.has_ended

    def hold(self, run: Run, _: str) -> object:
        """Stand still; only an attempt can, which has a thread of its own: what delivers and takes back has none."""
        self._actor = current_actor()
        if self._actor is None:
            return NOT_HERE
        self._actor.hold(run)
        return None

    def resume(self) -> AttemptReport | None:
        """Let it go on to its end; returns the attempt as it then stands, None if it had claimed nothing.

        Raises:
            KitError: Nothing is paused here.
        """
        if self._actor is None or self._actor.has_ended:
            msg = "Nothing is paused here: let the job run first."
            raise KitError(msg)
        self._actor.go_on()
        return running.last_of(self._actor.worker_id, using=self._kit.using)

    def give_up(self) -> None:
        """End it where it stands, as a process that is killed."""
        if self._actor is not None:
            self._actor.give_up()


class JobsFaults:
    """Makes faults happen in what a kit runs; use it as a context manager, or as the fixture ``jobs_faults``.

    At the end it fails for each fault that did not happen: a test of a fault that never came would prove nothing.
    Points that the test itself reaches (by an enqueue, for example) do not count.

    Args:
        kit: The kit that runs the jobs.
        strict: Whether a fault that did not happen is a failure.
    """

    def __init__(self, kit: JobsKit, *, strict: bool = True) -> None:
        self._strict = strict
        self.points_reached: list[str] = []
        self._kit = kit
        self._armed: list[Armed] = []
        self._wanted: list[str] = []
        self._pauses: list[Pause] = []
        self._outer: faults.Plan | None = None

    def __enter__(self) -> Self:
        """Look at every point from now on."""
        self._outer, faults.plan = faults.plan, self._reached
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop looking, and end what is still paused.

        Raises:
            AssertionError: A fault did not happen, or a point that must be reached was not; not if the block raised.
        """
        try:
            for pause in self._pauses:
                pause.give_up()
        finally:
            faults.plan = self._outer
            self._kit.may_be_held = False
        if kind is None and self._strict:
            self.check()

    def crash_at(self, point: str, *, nth: int = 1) -> None:
        """Let the worker's process die there, as ``kill -9`` would; see :class:`SimulatedCrash` for what that means."""
        self._arm("crash_at", point, lambda run, _: run.die(), nth)

    def raise_at(self, point: str, error: BaseException | None = None, *, nth: int = 1) -> None:
        """Raise there, by default an error as one in the worker's own code would be."""

        def fail(_: Run, __: str) -> None:
            raise error or InjectedError("A test raised this at a fault point.")

        self._arm("raise_at", point, fail, nth)

    def delay_at(self, point: str, delay: timedelta, *, nth: int = 1) -> None:
        """Let so much time pass there, by moving the clock of the kit."""
        self._arm("delay_at", point, lambda *_: self._kit.clock.tick(delay), nth)

    def drop_connection_at(self, point: str, *, phase: Phase, nth: int = 1) -> None:
        """Lose the database connection there.

        Args:
            point: Where.
            phase: ``request``: what is sent next does not arrive. ``reply``: what is committed next is committed, and
                the worker gets no answer.
            nth: At which time.
        """
        if phase not in {"request", "reply"}:
            msg = f"A connection is lost with the request or the reply, not with {phase!r}."
            raise KitError(msg)
        self._arm("drop_connection_at", point, lambda run, using: run.lose(phase, using), nth)

    def pause_at(self, point: str, *, nth: int = 1) -> Pause:
        """Let the attempt stand still there until the test says ``resume()``, while other attempts go on.

        A transaction that is open there is rolled back, as the server does with one that idles for too long.
        """
        pause = Pause(self._kit)
        self._pauses.append(pause)
        self._kit.may_be_held = True
        self._arm("pause_at", point, pause.hold, nth)
        return pause

    def must_reach(self, point: str) -> None:
        """Fail at the end if the point was not reached."""
        self._wanted.append(faults.checked(point))

    @property
    def all_fired(self) -> bool:
        """Whether every fault has happened."""
        return all(armed.fired for armed in self._armed)

    def check(self) -> None:
        """Check that everything happened.

        Raises:
            AssertionError: Something did not; the message has what was reached instead.
        """
        never = [f"{armed} never happened." for armed in self._armed if not armed.fired]
        never += [f"{point!r} was never reached." for point in self._wanted if point not in self.points_reached]
        if never:
            counted = Counter(self.points_reached)
            told = [f"  {point}" + (f" ({count} times)" if count > 1 else "") for point, count in counted.items()]
            raise AssertionError("\n".join([*never, "What was reached:", *(told or ["  nothing: no job ran"])]))

    def _arm(self, what: str, point: str, act: Act, nth: int) -> None:
        self._armed.append(Armed(what, point, act, nth=nth))

    def _reached(self, point: str, using: str) -> None:
        if self._outer is not None:
            self._outer(point, using)
        run = current()
        if not isinstance(run, Run):
            return
        if run.is_dead:
            run.die()
        self.points_reached.append(faults.checked(point))
        if point == "effect.after_intent":
            run.in_effect = True
        elif point == "effect.after_call":
            run.in_effect = False
        for armed in tuple(self._armed):
            armed.reached(point, run, using)
