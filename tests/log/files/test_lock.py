"""Goal: one writer for a partition: not two threads, two openings, a forked child, another process or a JVM beside it.
Method: real locks in temporary roots, real children and processes that answer through pipes, a Java program."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kstore.env import LocalEnv
from kstore.env.process import LockHolder
from kstore.errors import LogClosedError, LogLockedError, StorageError
from kstore.log.files import lock as lock_module
from kstore.log.files.lock import PartitionLock
from tests.fakes.waiting import wait_until

TRY_LOCK = Path(__file__).parent / "java" / "TryLock.java"
HOLDER = """
import sys
from kstore.errors import LogLockedError
from kstore.log.files.lock import PartitionLock
for _ in sys.stdin:
    try:
        lock = PartitionLock.acquire(sys.argv[1], "t-9")
        print("holds it", flush=True)
    except LogLockedError as error:
        print("free of it", flush=True)
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    # Other tests of this process may have left logs to the garbage collector.
    before = dict(lock_module._registry._roots)
    yield str(tmp_path)
    assert lock_module._registry._roots.items() <= before.items()


def is_locked(root: str, name: str | None = "t-5") -> bool:
    try:
        PartitionLock.acquire(root, name).release()
    except LogLockedError:
        return True
    return False


REFUSALS = [
    pytest.param("t-0", "t-0", True, id="same-partition"),
    pytest.param("t-0", "t-1", False, id="two-partitions"),
    pytest.param(None, "t-0", True, id="partition-of-a-held-root"),
    pytest.param("t-0", None, True, id="root-of-a-held-partition"),
    pytest.param(None, None, True, id="same-root"),
]


@pytest.mark.parametrize(("first", "second", "is_refused"), REFUSALS)
def test_second_lock_of_the_same_is_refused(root: str, first: str | None, second: str | None, is_refused: bool) -> None:
    lock = PartitionLock.acquire(root, first)
    assert is_locked(root, second) == is_refused
    assert is_locked(os.path.join(root, "."), second) == is_refused
    lock.release()
    assert not is_locked(root, second)


def test_root_reached_by_a_link_is_the_same_root(root: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(root)
    lock = PartitionLock.acquire(str(link), "t-0")
    assert is_locked(root, "t-0")
    assert not is_locked(root, "t-1")
    lock.release()


def test_refusal_names_the_place_and_the_lock_file(root: str) -> None:
    with run_python(root) as ask:
        assert ask("lock") == "holds it"
        with pytest.raises(LogLockedError, match=rf"cannot write {root}/t-0: process .* holds {root}/.lock") as caught:
            PartitionLock.acquire(root, "t-0")
    assert caught.value.path == f"{root}/t-0"


def refusal_of(root: str, env: LocalEnv | None = None) -> LogLockedError:
    with pytest.raises(LogLockedError) as caught:
        PartitionLock.acquire(root, "t-0", env or LocalEnv())
    return caught.value


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_refusal_names_the_process_that_holds_the_lock(root: str) -> None:
    for removes_file in (False, True):
        with holding_process(root) as process:
            if removes_file:
                os.remove(f"{root}/.lock")
            error = refusal_of(root)
            name = Path(f"/proc/{process.pid}/comm").read_text().strip()
            assert (error.holder_pid, error.holder_name) == (process.pid, name)
            assert f": process {process.pid} ({name}) holds {root}" in str(error)
            assert pickle.loads(pickle.dumps(error)).holder_pid == process.pid


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_refusal_names_a_child_that_outlived_the_process_that_took_the_lock(root: str) -> None:
    # fork() of C, of which Python, and so kstore, is not told.
    script = HOLDER.replace("for _ in", "import ctypes, os\nfor _ in").replace(
        'print("holds it"', "pid = ctypes.CDLL(None).fork() or os.read(0, 1) or os._exit(0)\n        print(pid"
    )
    with subprocess.Popen(
        (sys.executable, "-c", script, root), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write("lock\n")
        parent.stdin.flush()
        child = int(parent.stdout.readline())
        assert refusal_of(root).holder_pid == parent.pid
        parent.kill()
        parent.wait()
        error = refusal_of(root)
        assert error.holder_pid == child
        assert f"a child that process {parent.pid} made by fork() before it ended, holds {root}/.lock" in str(error)
    wait_until(lambda: not is_locked(root))


def test_refusal_without_a_known_holder_says_so(root: str) -> None:
    class BlindEnv(LocalEnv):
        def lock_holder(self, *paths: str) -> None:  # noqa: ARG002
            return None

    with holding_process(root):
        error = refusal_of(root, BlindEnv())
    assert (error.holder_pid, error.holder_name) == (None, None)
    assert f"another process, perhaps a broker, holds {root}/.lock" in str(error)


def test_holder_of_another_user_is_known_by_the_list_of_locks(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.env.process._has_locked", lambda *_: False)
    with holding_process(root) as process:
        assert refusal_of(root).holder_pid == process.pid


class WaitingEnv(LocalEnv):
    """An Env whose time passes only in waits, each of which is noted and tells `then`."""

    def __init__(self, then: Callable[[int], object] = lambda _: None) -> None:
        self.waits: list[float] = []
        self.lookups = 0
        self._then = then

    def monotonic_ms(self) -> int:
        return int(sum(self.waits))

    def sleep_ms(self, duration_ms: float) -> None:
        self.waits.append(duration_ms)
        self._then(len(self.waits))

    def lock_holder(self, *paths: str) -> LockHolder | None:
        self.lookups += 1
        return super().lock_holder(*paths)


def test_lock_is_waited_for_until_it_is_free(root: str) -> None:
    lock = PartitionLock.acquire(root, "t-0")
    env = WaitingEnv(lambda count: lock.release() if count == 9 else None)
    for timeout_s in (60.0, None):
        waited = PartitionLock.acquire(root, "t-0", env, timeout_s=timeout_s)
        assert env.waits == [1, 2, 4, 8, 16, 32, 50, 50, 50]
        waited.release()


def test_lock_of_another_process_is_waited_for(root: str) -> None:
    with holding_process(root) as process:

        def kill(count: int) -> None:
            if count == 2:
                process.kill()
                process.wait()

        env = WaitingEnv(kill)
        PartitionLock.acquire(root, "t-0", env, timeout_s=60.0).release()
    assert (len(env.waits), env.lookups) == (2, 0)


def test_wait_for_a_lock_ends_with_its_timeout(root: str) -> None:
    with holding_process(root):
        env = WaitingEnv()
        with pytest.raises(LogLockedError, match=r"process .* holds .*; waited 100 ms for it$"):
            PartitionLock.acquire(root, "t-0", env, timeout_s=0.1)
        assert env.waits == [1, 2, 4, 8, 16, 32, 37]
        assert env.lookups == 1


def test_missing_root_is_a_storage_error(root: str) -> None:
    with pytest.raises(StorageError, match="No such file"):
        PartitionLock.acquire(f"{root}/missing", "t-0")


def test_root_stays_locked_until_its_last_partition_is_released(root: str) -> None:
    first, second = (PartitionLock.acquire(root, name) for name in ("t-0", "t-1"))
    with run_python(root) as ask:
        first.release()
        first.release()
        assert ask("lock") == "free of it"
        second.release()
        assert ask("lock") == "holds it"
    assert sorted(os.listdir(root)) == [".lock"]


def test_lock_of_a_root_is_shared_with_each_of_its_partitions_once(root: str) -> None:
    store = PartitionLock.acquire(root, None)
    log = store.share("t-0")
    with pytest.raises(LogLockedError, match="another log of this process"):
        store.share("t-0")
    store.release()
    with pytest.raises(LogClosedError):
        store.share("t-1")
    log.check_owner()
    with run_python(root) as ask:
        assert ask("lock") == "free of it"
        log.release()
        assert ask("lock") == "holds it"


def test_lock_of_one_partition_is_not_shared(root: str) -> None:
    lock = PartitionLock.acquire(root, "t-0")
    with pytest.raises(ValueError, match="whole root"):
        lock.share("t-1")
    lock.release()


def test_released_lock_gives_no_right_to_write(root: str) -> None:
    lock = PartitionLock.acquire(root, "t-0")
    lock.check_owner()
    lock.release()
    with pytest.raises(LogClosedError, match="t-0 was released"):
        lock.check_owner()


def test_dropped_lock_is_released(root: str) -> None:
    lock = PartitionLock.acquire(root, "t-0")
    assert is_locked(root, "t-0")
    del lock
    assert not is_locked(root, "t-0")


def test_lock_that_is_dropped_while_the_roots_are_looked_through_is_released(
    root: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Roots(dict[Any, Any]):
        """As if the garbage collector ran, and dropped the lock, after the first item."""

        def items(self) -> Any:
            for item in dict.items(self):
                yield item
                dropped.clear()

    monkeypatch.setattr(lock_module._registry, "_roots", Roots(lock_module._registry._roots))
    dropped = [PartitionLock.acquire(str(tmp_path_factory.mktemp("other")), "t-0")]
    lock = PartitionLock.acquire(root, "t-0")
    dropped.clear()
    lock.release()
    assert not is_locked(root, "t-0")


def test_new_root_in_the_place_of_one_that_was_removed_is_free(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    old = PartitionLock.acquire(str(root), "t-0")
    shutil.rmtree(root)
    root.mkdir()
    new = PartitionLock.acquire(str(root), "t-0")
    old.release()
    new.check_owner()
    assert is_locked(str(root), "t-0")
    new.release()


def test_failed_locking_leaves_the_root_free(root: str) -> None:
    class FailingEnv(LocalEnv):
        def lock_file(self, path: str) -> None:
            raise StorageError("no locks", path=path)

    with pytest.raises(StorageError, match="no locks"):
        PartitionLock.acquire(root, "t-0", FailingEnv())
    assert not is_locked(root, "t-0")


def test_one_of_many_threads_gets_the_lock(root: str) -> None:
    barrier = threading.Barrier(8)
    got: list[PartitionLock] = []
    refused: list[LogLockedError] = []

    def race() -> None:
        barrier.wait()
        try:
            got.append(PartitionLock.acquire(root, "t-0"))
        except LogLockedError as error:
            refused.append(error)

    for _ in range(50):
        threads = [threading.Thread(target=race) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(got), len(refused)) == (1, 7)
        got.pop().release()
        refused.clear()


def in_child(call: Callable[[], object]) -> str:
    """Return what a forked child says: the name of the error that the call raises, or its result."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(call())
        except (LogLockedError, LogClosedError, ValueError) as error:
            answer = type(error).__name__
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


def test_child_of_fork_has_no_right_to_write_and_takes_none_away(root: str) -> None:
    lock = PartitionLock.acquire(root, "t-0")
    assert in_child(lock.check_owner) == "LogLockedError"
    assert in_child(lambda: is_locked(root, "t-1")) == "True"
    assert in_child(lock.release) == "None"
    assert in_child(lambda: lock.share("t-1")) in ("ValueError", "LogLockedError")
    lock.check_owner()
    with run_python(root) as ask:
        assert ask("lock") == "free of it"
    lock.release()


def test_child_that_lives_on_does_not_keep_the_lock(root: str) -> None:
    lock = PartitionLock.acquire(root, "t-0")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    lock.release()
    with run_python(root) as ask:
        assert ask("lock") == "holds it"
    os.close(writer)
    os.waitpid(pid, 0)


def test_fork_while_another_thread_takes_a_lock_does_not_block_the_child(root: str) -> None:
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock_module._registry.mutex:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    assert in_child(lambda: is_locked(root)) == "False"
    done.set()
    thread.join()


@contextmanager
def conversation(*command: str) -> Iterator[Callable[[str], str]]:
    """Run a program that answers each line with one."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def ask(text: str) -> str:
            stdin.write(text + "\n")
            stdin.flush()
            return stdout.readline().strip()

        try:
            yield ask
        finally:
            stdin.close()
            process.wait()


@contextmanager
def holding_process(root: str) -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-c", HOLDER, root)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("lock\n")
        process.stdin.flush()
        assert process.stdout.readline() == "holds it\n"
        yield process
        process.kill()


def run_python(root: str) -> contextmanager[Callable[[str], str]]:
    return conversation(sys.executable, "-c", HOLDER, root)


def test_killed_process_frees_its_lock(root: str) -> None:
    with holding_process(root) as process:
        assert is_locked(root)
        process.kill()
        process.wait()
    assert not is_locked(root)


@pytest.mark.spark
def test_jvm_and_kstore_refuse_each_other(root: str) -> None:
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    with conversation(java, "-XX:TieredStopAtLevel=1", str(TRY_LOCK), f"{root}/.lock") as ask:
        lock = PartitionLock.acquire(root, "t-0")
        assert ask("lock") == "free of it"
        lock.release()
        assert ask("lock") == "holds it"
        assert is_locked(root, "t-0")
        assert is_locked(root, None)
        assert ask("unlock") == "free of it"
        lock = PartitionLock.acquire(root, None)
        assert ask("lock") == "free of it"
        lock.release()
    assert not is_locked(root)
