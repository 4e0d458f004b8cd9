"""The process and its clocks: the time, hooks for fork() and for the end, environment variables; who holds a lock."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from kstore.waiting import Latch

_NS_PER_MS = 1_000_000
_PROC = "/proc"
_IN_MEMORY = "/dev/shm"  # the directory made in it has a random name, and belongs to this user
_LEAST_BYTES_IN_MEMORY = 256 * 2**20
# What a collection traverses in a millisecond or two.
_FEW_OBJECTS = 5_000


class Clock(Protocol):
    """A wall clock, for record timestamps, and a monotonic clock, for everything else; in milliseconds."""

    def wall_clock_ms(self) -> int:
        """Return the milliseconds since 1970 (UTC); the clock may jump."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never decreases."""


class SystemClock:
    """The machine's clocks.  Threads: safe."""

    def wall_clock_ms(self) -> int:
        """Return the milliseconds since 1970 (UTC); the clock may jump."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never decreases."""
        return time.monotonic_ns() // _NS_PER_MS

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""
        time.sleep(duration_ms / 1000)


SYSTEM_CLOCK = SystemClock()


def usable_cpus() -> int:
    """Return on how many CPUs the threads of this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def after_fork_in_child(callback: Callable[[], None]) -> None:
    """Call `callback` in every child process that Python's fork() creates, before fork() returns there."""
    os.register_at_fork(after_in_child=callback)


_called_at_exit: set[Callable[[], None]] = set()


def at_exit(callback: Callable[[], None]) -> None:
    """Call `callback` at the exit of this process, after all threads but daemon threads have ended.

    Child processes must register their own callbacks, also in multiprocessing, which skips atexit before Python 3.13.
    os._exit() and signals that end the process skip the callback.
    """
    if callback in _called_at_exit:
        return
    _called_at_exit.add(callback)
    own_process = os.getpid()

    def call() -> None:
        if os.getpid() == own_process:
            callback()

    atexit.register(call)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        multiprocessing.Finalize(None, call, exitpriority=0)


after_fork_in_child(_called_at_exit.clear)


def exclude_from_collection() -> None:
    """Exclude all objects that exist now from garbage collection, such as imported modules, unless they are few.

    For a process in which others run full collections often: what a step imports after its call is left to the next.
    """
    if len(gc.get_objects()) > _FEW_OBJECTS:
        gc.collect()
        gc.freeze()


@contextmanager
def until_told_to_end() -> Iterator[Callable[[], None]]:
    """Yield a function that waits for SIGTERM or an interrupt (SIGINT), also one that came since this block began.

    After it has returned, another signal does what it did before the block. Only for the main thread.
    """
    import signal

    told = Latch()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: told.open()) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def wait() -> None:
        told.wait()
        restore()

    try:
        yield wait
    finally:
        restore()


def set_default_variable(name: str, value: str) -> None:
    """Set an environment variable of this process and of those it will start, unless it is set."""
    os.environ.setdefault(name, value)


def variable(name: str) -> str | None:
    """Return an environment variable of this process, None if it is not set."""
    return os.environ.get(name)


class TemporaryDirectory:
    """A new directory of this process: in memory where there is room for it, which needs no syncs.

    Attributes: path.
    It is removed by close(), and at the end of the process; one that is killed leaves it.
    Raises: OSError.
    """

    def __init__(self) -> None:
        import tempfile

        self._directory = tempfile.TemporaryDirectory(prefix="kstore-", dir=_directory_in_memory())
        self.path = self._directory.name

    def close(self) -> None:
        """Remove the directory with all that is in it."""
        self._directory.cleanup()


def _directory_in_memory() -> str | None:
    """Return a directory whose files are in memory, None if there is none with room: containers often have 64 MiB."""
    try:
        space = os.statvfs(_IN_MEMORY)
    except OSError:
        return None
    has_room = space.f_bavail * space.f_frsize >= _LEAST_BYTES_IN_MEMORY
    return _IN_MEMORY if has_room and os.access(_IN_MEMORY, os.W_OK | os.X_OK) else None


class CommandRun(NamedTuple):
    """What a command did. status: None if it took too long and was ended; errors: its stderr; files: what it made."""

    status: int | None
    errors: bytes
    files: dict[str, bytes]


def run_in_new_directory(
    command: Sequence[str], files: Mapping[str, bytes], *, stdin: bytes, made: Iterable[str], timeout_s: float
) -> CommandRun:
    """Run a command in a directory that has these files and nothing else, and that is removed afterwards.

    Args: files: by path below the directory; made: the files, of those that the command may make, that are returned.
    Raises: OSError.
    """
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kstore-") as directory:
        for name, content in files.items():
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
        try:
            ended = subprocess.run(
                command, input=stdin, cwd=directory, capture_output=True, timeout=timeout_s, check=False
            )
            status, errors = ended.returncode, ended.stderr
        except subprocess.TimeoutExpired as error:
            status, errors = None, error.stderr or b""
        contents = {}
        for name in made:
            path = os.path.join(directory, name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    contents[name] = file.read()
        return CommandRun(status, errors, contents)


def random_bytes(size: int) -> bytes:
    """Return bytes that nobody can foretell.  Cost: less to import than the module secrets."""
    return os.urandom(size)


class LockHolder(NamedTuple):
    """A process that holds a lock. name: None if it is unknown; taker_pid: the process that took the lock, made this
    one by fork() and has ended, None if this one took it itself.
    """

    pid: int
    name: str | None = None
    taker_pid: int | None = None

    def __str__(self) -> str:
        text = f"process {self.pid}" if self.name is None else f"process {self.pid} ({self.name})"
        if self.taker_pid is not None:
            text += f", a child that process {self.taker_pid} made by fork() before it ended,"
        return text


def find_lock_holder(paths: Sequence[str]) -> LockHolder | None:
    """Return a process that holds the lock of one of these files or directories, which are locked together.

    A process made by fork() holds the locks of its parent as long as it has their descriptors, so that Linux is asked
    for the descriptors, by /proc; those of other users' processes can't be seen, and then the process that took the
    lock counts. None if it is in another container, or on another machine.
    Cost: Linux: a readlink for each open file of this user's processes, if the process that took the lock has ended.
    """
    if sys.platform != "linux":
        return next((LockHolder(pid) for pid in map(_pid_of_process_lock, paths) if pid > 0), None)
    identities = set()
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            identities.add((status.st_dev, status.st_ino))
    takers = _takers({inode for _, inode in identities})
    names = {os.path.basename(path) for path in paths}
    for pid in dict.fromkeys((*takers, *_all_pids())):
        if _has_locked(pid, names, identities):
            ended = [] if pid in takers else [taker for taker in takers if _name_of(taker) is None]
            return LockHolder(pid, _name_of(pid), next(iter(ended), None))
    return next((LockHolder(taker, name) for taker in takers if (name := _name_of(taker)) is not None), None)


def _takers(inodes: set[int]) -> list[int]:
    """Return the processes that took locks of these files, by /proc/locks; open file description locks have none."""
    found = []
    with suppress(OSError), open(f"{_PROC}/locks", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            fields = line.split()
            # A line with "->" is of a process that waits.
            if len(fields) < 6 or fields[1] == "->":
                continue
            pid, inode = fields[4], fields[5].rpartition(":")[2]
            if pid.isdigit() and inode.isdigit() and int(inode) in inodes and int(pid) > 0:
                found.append(int(pid))
    return found


def _all_pids() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(name) for name in os.listdir(_PROC) if name.isdigit())


def _has_locked(pid: int, names: set[str], identities: set[tuple[int, int]]) -> bool:
    """Whether a process has a descriptor that holds a lock of one of these files."""
    try:
        descriptors = os.listdir(f"{_PROC}/{pid}/fd")
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):
            link = f"{_PROC}/{pid}/fd/{descriptor}"
            if os.path.basename(os.readlink(link)) not in names:
                continue
            status = os.stat(link)
            if (status.st_dev, status.st_ino) in identities:
                with open(f"{_PROC}/{pid}/fdinfo/{descriptor}", encoding="utf-8", errors="replace") as info:
                    if any(line.startswith("lock:") for line in info):
                        return True
    return False


def _name_of(pid: int) -> str | None:
    """Return the name of a process, None if it has ended."""
    try:
        with open(f"{_PROC}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _pid_of_process_lock(path: str) -> int:
    """Return the process that holds a lock by fcntl, 0 if there is none. l_start, l_len, l_pid, l_type, l_whence, as
    BSD and macOS have them in struct flock.

    Requires: this process holds no lock of the file: closing the descriptor would release it.
    """
    asked = struct.pack("qqihh", 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        _, _, pid, lock_type, _ = struct.unpack("qqihh", fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except OSError:
        return 0
    finally:
        os.close(fd)
    return 0 if lock_type == fcntl.F_UNLCK else int(pid)
