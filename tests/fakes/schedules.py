"""A deterministic schedule explorer: real threads of which one runs at a time, switched by a seeded choice.

Threads are switched at every lock, condition and wait; with `line_chance` also between two lines of kstore/producer,
where the interpreter might switch. Time stands still but for waits, so a wait without end that nobody ends is a
deadlock, found as soon as no thread can run. A run is repeated exactly by its seed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from kstore.errors import KStoreError

ENDLESS_S = 3600.0
TIMEOUT_CHANCE = 0.02
MOST_STEPS = 100_000
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    KStoreError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class DeadlockError(AssertionError):
    """No thread can run, and none waits for a time."""


class _OverError(BaseException):
    """Unwinds the threads that are left when a run has failed."""


@dataclass
class Task:
    """One thread of a run."""

    name: str
    thread: threading.Thread
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    condition: Callable[[], bool] | None = None
    deadline_s: float | None = None
    is_timed_out: bool = False
    is_done: bool = False

    def can_run(self) -> bool:
        return not self.is_done and (self.condition is None or self.condition())


class Schedule:
    """One run. Also the clock of what runs in it.

    Args: check: called at every step, and raises when something is wrong.
    """

    def __init__(self, seed: int, *, line_chance: float = 0.0) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._line_chance = line_chance
        self._tasks: list[Task] = []
        self._main_gate = threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._is_over = self._is_choosing = False
        self.check: Callable[[], None] = lambda: None
        self.now_s = 0.0
        self.steps = 0
        # The names of the threads in the order in which they went on.
        self.order: list[str] = []

    # the clock

    def wall_clock_ms(self) -> int:
        return round(self.now_s * 1000)

    def monotonic_ms(self) -> int:
        return round(self.now_s * 1000)

    # threads

    def spawn(self, name: str, run: Callable[[], None]) -> None:
        """Add a thread, which starts with run()."""

        def body() -> None:
            task.gate.acquire()
            if self._line_chance:
                sys.settrace(self._trace)
            try:
                if not self._is_over:
                    run()
            except _OverError:
                pass
            except FAILURES as error:
                self._fail(error)
            finally:
                sys.settrace(None)
                task.is_done = True
                self._leave()

        task = Task(name, threading.Thread(target=body, daemon=True))
        self._tasks.append(task)

    def run(self) -> None:
        """Run all threads to their end, and raise what went wrong in one of them."""
        for task in self._tasks:
            task.thread.start()
        self._leave()
        self._main_gate.acquire()
        self._is_over = True
        for task in self._tasks:
            task.gate.release()
        for task in self._tasks:
            task.thread.join()
        if self._failure is not None:
            raise self._failure

    def switch(self) -> None:
        """Let another thread run, or the same."""
        task = self._of_this_thread()
        if task is None:
            return
        chosen = self._step()
        if chosen is None or chosen is task:
            return
        self._hand_to(chosen)
        self._resume(task)

    def block(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until condition() holds; return whether it does, or the time is over."""
        task = self._of_this_thread()
        if task is None:
            if not condition():
                raise DeadlockError("the thread that runs no schedule would wait")
            return True
        task.condition = condition
        task.deadline_s = None if timeout_s is None or timeout_s >= ENDLESS_S else self.now_s + max(timeout_s, 0.0)
        task.is_timed_out = False
        chosen = self._step()
        if chosen is None:
            self._fail(self._deadlock())
            raise _OverError
        if chosen is not task:
            self._hand_to(chosen)
            self._resume(task)
        task.condition = task.deadline_s = None
        self._is_choosing = True
        try:
            return condition()
        finally:
            self._is_choosing = False

    def chance(self, probability: float) -> bool:
        """Draw whether something happens."""
        return self._random.random() < probability

    def _of_this_thread(self) -> Task | None:
        thread = threading.current_thread()
        task = next((task for task in self._tasks if task.thread is thread), None)
        if task is not None and self._is_over:
            raise _OverError
        return task

    def _step(self) -> Task | None:
        """Check, and draw who goes on."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            self._fail(AssertionError(f"no end after {MOST_STEPS} steps"))
            raise _OverError
        self._is_choosing = True
        try:
            self.check()
            return self._choose()
        except AssertionError as error:
            self._fail(error)
            raise _OverError from None
        finally:
            self._is_choosing = False

    def _choose(self) -> Task | None:
        """Draw who goes on; a wait that has an end may be over when others could run too."""
        runnable = [task for task in self._tasks if task.can_run()]
        timed = [
            task for task in self._tasks if not task.is_done and task.deadline_s is not None and task not in runnable
        ]
        if timed and (not runnable or self.chance(TIMEOUT_CHANCE)):
            task = min(timed, key=lambda task: task.deadline_s or 0.0)
            self.now_s = max(self.now_s, task.deadline_s or 0.0)
            task.is_timed_out = True
            return task
        return self._random.choice(runnable) if runnable else None

    def _hand_to(self, task: Task) -> None:
        self.order.append(task.name)
        task.gate.release()

    def _resume(self, task: Task) -> None:
        task.gate.acquire()
        if self._is_over:
            raise _OverError

    def _leave(self) -> None:
        """Hand on from a thread that has ended, or from the one that started all."""
        if self._is_over or self._failure is not None:
            self._main_gate.release()
            return
        chosen = self._choose()
        if chosen is not None:
            self._hand_to(chosen)
            return
        if not all(task.is_done for task in self._tasks):
            self._failure = self._deadlock()
        self._main_gate.release()

    def _deadlock(self) -> DeadlockError:
        left = [task.name for task in self._tasks if not task.is_done]
        return DeadlockError(f"nobody can run: {left}, seed {self._seed}")

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._is_over = True
        self._main_gate.release()

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if "/kstore/producer/" not in frame.f_code.co_filename:
            return None
        # conditions and checks run code of kstore too
        if event == "line" and not self._is_choosing and self.chance(self._line_chance):
            self.switch()
        return self._trace

    # what the modules get in place of threading

    def lock(self) -> ScheduledLock:
        return ScheduledLock(self)

    def condition(self, lock: ScheduledLock | None = None) -> ScheduledCondition:
        return ScheduledCondition(self, self.lock() if lock is None else lock)

    @contextmanager
    def in_place_of_threading(self, *modules: ModuleType) -> Iterator[None]:
        """Give modules locks and conditions of this schedule."""
        namespace = SimpleNamespace(Lock=self.lock, Condition=self.condition, get_ident=threading.get_ident)
        with ExitStack() as stack:
            for module in modules:
                stack.enter_context(mock.patch.object(module, "threading", namespace))
            yield


class ScheduledLock:
    """A lock as those of _thread: whoever may release it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._is_held = False

    def acquire(self, blocking: int = 1, timeout: float = -1) -> bool:
        self._schedule.switch()
        if self._is_held:
            if not blocking:
                return False
            if not self._schedule.block(lambda: not self._is_held, None if timeout < 0 else timeout):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class ScheduledCondition:
    """A condition over such a lock."""

    def __init__(self, schedule: Schedule, lock: ScheduledLock) -> None:
        self._schedule = schedule
        self._lock = lock
        self._waiters: list[list[bool]] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiters.append(told)
        self._lock.release()
        try:
            return self._schedule.block(lambda: told[0], timeout)
        finally:
            self._waiters = [other for other in self._waiters if other is not told]
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        while not (holds := predicate()):
            if not self.wait(timeout):
                return predicate()
        return holds

    def notify(self, n: int = 1) -> None:
        for told in self._waiters[:n]:
            told[0] = True
        del self._waiters[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiters))
