"""Goal: files are read whole or with a typed error, whatever the path names and however the system cuts reads short.
Method: real files, links, FIFOs and directories in a temporary folder; os calls replaced to return little."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kstore.config import MIB
from kstore.env import DEFAULT_ENV, UNKNOWN_FILE, FileKind, LocalEnv, LocalFile, OpenFiles, absolute_path, path_list
from kstore.env import files as env_module
from kstore.env import local as local_module
from kstore.env.base import FileIdentity
from kstore.env.cache import SharedCache
from kstore.env.files import WRITE_BYTES, status_of
from kstore.errors import LogClosedError, StorageError
from tests.fakes.counting import CountingEnv

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


READS = [
    pytest.param(0, 0, id="nothing"),
    pytest.param(0, 1, id="first-byte"),
    pytest.param(100, 300, id="middle"),
    pytest.param(0, 1024, id="whole"),
    pytest.param(1000, 100, id="across-the-end"),
    pytest.param(1024, 10, id="at-the-end"),
    pytest.param(5000, 10, id="behind-the-end"),
]
# Larger than what is read from the page cache without a call of os.pread.
LARGE = CONTENT * 16
LARGE_READS = [
    pytest.param(0, 16384, id="whole"),
    pytest.param(300, 9000, id="middle"),
    pytest.param(16000, 5000, id="across-the-end"),
    pytest.param(16384, 5000, id="at-the-end"),
]


@pytest.mark.parametrize(("position", "size"), READS)
def test_pread_gives_the_bytes_that_are_there(file: Path, position: int, size: int) -> None:
    with DEFAULT_ENV.open_read(str(file)) as opened:
        assert opened.pread(size, position=position) == CONTENT[position : position + size]
        buffer = bytearray(size)
        count = opened.pread_into(buffer, position=position)
        assert bytes(buffer[:count]) == CONTENT[position : position + size]


@pytest.mark.parametrize(("position", "size"), LARGE_READS)
def test_short_reads_of_the_system_are_continued(
    file: Path, position: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(LARGE)
    pread, preadv = os.pread, os.preadv

    def pread_little(fd: int, length: int, offset: int) -> bytes:
        return pread(fd, min(length, 7), offset)

    def preadv_little(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        return preadv(fd, [buffers[0][:7]], offset)

    monkeypatch.setattr(env_module.os, "pread", pread_little)
    monkeypatch.setattr(env_module.os, "preadv", preadv_little)
    with DEFAULT_ENV.open_read(str(file)) as opened:
        assert opened.pread(size, position=position) == LARGE[position : position + size]
        buffer = bytearray(size)
        count = opened.pread_into(buffer, position=position)
        assert bytes(buffer[:count]) == LARGE[position : position + size]


def test_size_is_that_of_now(file: Path) -> None:
    with DEFAULT_ENV.open_read(str(file)) as opened:
        assert opened.size() == 1024
        with file.open("ab") as grown:
            grown.write(b"more")
        assert opened.size() == 1028


def make_link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(CONTENT)
    path.symlink_to(target)


NOT_FILES = [
    pytest.param(make_link, id="symbolic-link"),
    pytest.param(os.mkfifo, id="fifo"),
    pytest.param(Path.mkdir, id="directory"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", NOT_FILES)
def test_what_is_no_regular_file_is_refused_without_blocking(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "00000000000000000000.log"
    make(path)
    with pytest.raises(StorageError, match=str(path)) as caught:
        DEFAULT_ENV.open_read(str(path))
    assert caught.value.path == str(path)


def test_refused_files_leave_no_descriptor_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(StorageError):
        DEFAULT_ENV.open_read(str(tmp_path / "fifo"))
    assert os.listdir("/proc/self/fd") == before


def test_errors_of_the_system_keep_their_errno_and_name_the_path(tmp_path: Path) -> None:
    path = str(tmp_path / "missing")
    with pytest.raises(StorageError, match=f"cannot open {path}: No such file") as caught:
        DEFAULT_ENV.open_read(path)
    assert caught.value.errno == errno.ENOENT
    assert isinstance(caught.value, OSError)
    with pytest.raises(StorageError) as caught:
        DEFAULT_ENV.listdir(path)
    assert caught.value.errno == errno.ENOENT


def test_read_error_is_a_storage_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, length: int, offset: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(env_module.os, "pread", fail)
    with DEFAULT_ENV.open_read(str(file)) as opened, pytest.raises(StorageError) as caught:
        opened.pread(len(LARGE), position=0)
    assert (caught.value.errno, caught.value.path) == (errno.EIO, str(file))


def test_closed_file_says_so(file: Path) -> None:
    opened = DEFAULT_ENV.open_read(str(file))
    opened.close()
    opened.close()
    for call in (opened.size, lambda: opened.pread(1, position=0), lambda: opened.pread_into(bytearray(1), position=0)):
        with pytest.raises(LogClosedError):
            call()


@pytest.mark.parametrize(("limit", "fits"), [(1023, False), (1024, True), (10**9, True)])
def test_read_file_stops_at_its_limit(file: Path, limit: int, fits: bool) -> None:
    if fits:
        assert DEFAULT_ENV.read_file(str(file), max_bytes=limit) == CONTENT
    else:
        with pytest.raises(StorageError, match="larger than the limit of 1023 bytes"):
            DEFAULT_ENV.read_file(str(file), max_bytes=limit)


def test_stat_tells_kinds_apart(tmp_path: Path, file: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "fifo")

    def kind(name: str, *, follow_symlinks: bool = True) -> FileKind | None:
        status = DEFAULT_ENV.stat(str(tmp_path / name), follow_symlinks=follow_symlinks)
        return None if status is None else status.kind

    assert kind("file") is FileKind.FILE
    assert kind("") is FileKind.DIRECTORY
    assert kind("fifo") is FileKind.OTHER
    assert kind("link") is FileKind.FILE
    assert kind("link", follow_symlinks=False) is FileKind.OTHER
    assert kind("missing") is None
    assert kind("file/below-a-file") is None


def test_stat_identity_changes_when_a_file_is_replaced(file: Path) -> None:
    before = DEFAULT_ENV.stat(str(file))
    other = file.with_name("other")
    other.write_bytes(CONTENT)
    other.rename(file)
    assert DEFAULT_ENV.stat(str(file)) != before


def test_status_of_one_call_is_that_of_the_operating_system(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    os.utime(file, ns=(5, 7))
    for path, follows in ((file, True), (link, True), (link, False), (tmp_path, True)):
        wanted = os.stat(path, follow_symlinks=follows)
        found = status_of(str(path), follow_symlinks=follows)
        changing = wanted.st_dev, wanted.st_ino, wanted.st_mtime_ns
        assert found[:3] == (wanted.st_mode, wanted.st_size, changing)
    with open(file, "rb") as opened:
        assert status_of(opened.fileno()) == status_of(str(file))
    with pytest.raises(FileNotFoundError, match="missing"):
        status_of(str(tmp_path / "missing"))
    with pytest.raises(ValueError, match="null"):
        status_of("a\0b")


def test_status_of_a_path_that_is_no_utf_8_is_found(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    Path(os.fsdecode(path)).write_bytes(b"x")
    assert status_of(os.fsdecode(path))[1] == 1


def test_status_without_the_call_for_it_has_no_birth(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    mode, size, changing, _ = status_of(str(file))
    device, inode, _ = changing
    without = FileIdentity(device, inode, 0) if os.major(device) else UNKNOWN_FILE
    monkeypatch.setattr("kstore.env.files.file_status", lambda *_, **__: None)
    assert status_of(str(file)) == (mode, size, changing, without)
    with open(file, "rb") as opened:
        assert status_of(opened.fileno(), follow_symlinks=False) == (mode, size, changing, without)


def test_files_that_had_the_same_inode_differ_by_their_birth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:

        def identity_by(*, device: int, inode: int, born_ns: int) -> FileIdentity:
            fields = 0o100644, 1, device, inode, 8, born_ns
            patch.setattr("kstore.env.files.file_status", lambda *_, **__: fields)
            return status_of("a")[3]

        assert identity_by(device=1 << 8, inode=5, born_ns=6) != identity_by(device=1 << 8, inode=5, born_ns=7)
        assert identity_by(device=5, inode=6, born_ns=0) == UNKNOWN_FILE != identity_by(device=5, inode=6, born_ns=7)
    (tmp_path / "a").touch()
    with DEFAULT_ENV.open_read(str(tmp_path / "a")) as opened:
        status = DEFAULT_ENV.stat(str(tmp_path / "a"))
        assert status is not None
        assert opened.identity() == status.file


class SteppingEnv(LocalEnv):
    """Opens, asks and reads in steps, as an Env that is not LocalEnv does."""


def outcome_of(call: Callable[[], object]) -> object:
    try:
        return call()
    except (StorageError, ValueError) as error:
        return type(error), str(error), getattr(error, "errno", None)


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    """A directory with what a name can be, small and large."""
    for size in (0, 1, 4096, 4097, MIB, MIB + 1):
        (tmp_path / f"size-{size}").write_bytes((CONTENT * 1025)[:size])
    (tmp_path / "link").symlink_to(tmp_path / "size-1")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


KINDS = [
    "size-0",
    "size-1",
    "size-4096",
    "size-4097",
    f"size-{MIB}",
    f"size-{MIB + 1}",
    "link",
    "dangling",
    "directory",
    "fifo",
]


@pytest.mark.parametrize("name", [*KINDS, "nothing", "directory/nothing", "size-1/nothing", "nul\0"])
@pytest.mark.parametrize("max_bytes", [0, 1, 4096, MIB, 2 * MIB])
def test_small_file_is_read_at_once_as_it_is_in_steps(kinds: Path, name: str, max_bytes: int) -> None:
    path = f"{kinds}/{name}"
    found = outcome_of(lambda: DEFAULT_ENV.read_file(path, max_bytes=max_bytes))
    expected = outcome_of(lambda: SteppingEnv().read_file(path, max_bytes=max_bytes))
    assert found == expected
    if isinstance(found, bytes):
        assert found == (CONTENT * 1025)[: int(name.removeprefix("size-"))]


@pytest.mark.parametrize("env", [DEFAULT_ENV, SteppingEnv()])
def test_sizes_are_those_of_regular_files(kinds: Path, env: LocalEnv) -> None:
    names = [*KINDS, "nothing"]
    assert env.sizes_of(str(kinds), names) == [0, 1, 4096, 4097, MIB, MIB + 1, None, None, None, None, None]
    assert env.sizes_of(str(kinds), []) == []


def test_sizes_are_found_where_the_system_has_no_call_for_them(kinds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.env.local.regular_sizes", lambda *_: None)
    assert DEFAULT_ENV.sizes_of(str(kinds), iter(["size-1", "fifo", "size-4097"])) == [1, None, 4097]


def test_sizes_of_an_impossible_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="null"):
        DEFAULT_ENV.sizes_of(str(tmp_path), ["a", "b\0"])


@pytest.mark.parametrize("name", [*KINDS, "nothing", "nothing/nothing"])
def test_file_that_is_opened_to_be_written_is_new_if_it_was_not_there(kinds: Path, name: str) -> None:
    path = kinds / name
    if name != "nothing" and not name.startswith("size"):
        with pytest.raises(StorageError):
            DEFAULT_ENV.open_write(str(path))
        assert not (kinds / "nothing").exists()
        return
    with DEFAULT_ENV.open_write(str(path)) as file:
        assert (file.is_new, file.size()) == (name == "nothing", 0 if name == "nothing" else int(name[5:]))


def test_file_that_is_created_by_another_while_it_is_opened_is_not_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opening = tmp_path / "file", os.open

    def open_late(name: str, flags: int, mode: int) -> int:
        if flags & os.O_CREAT:
            path.write_bytes(b"theirs")
        return opening(name, flags, mode)

    monkeypatch.setattr(local_module.os, "open", open_late)
    with DEFAULT_ENV.open_write(str(path)) as file:
        assert (file.is_new, file.pread(10, position=0)) == (False, b"theirs")


def test_listdir_is_sorted(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    assert DEFAULT_ENV.listdir(str(tmp_path)) == ["a", "b", "c"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in "abcd":
        (tmp_path / name).write_text(name)
    return [str(tmp_path / name) for name in "abcd"]


def small_cache(limit: int) -> SharedCache[LocalFile]:
    return SharedCache(limit=limit, weigh=lambda _: 1, drop=LocalFile.close)


def test_few_files_stay_open_and_the_last_used_ones(files: list[str]) -> None:
    env = CountingEnv()
    open_files = OpenFiles(env, small_cache(2))
    for path in (files[0], files[1], files[0], files[2], files[3], files[3]):
        with open_files.lend(path) as file:
            assert file.pread(9, position=0).decode() == Path(path).name
    assert env.open_names() == ["c", "d"]
    assert len(env.opened) == 4


def test_file_in_use_is_not_closed_under_its_user(files: list[str]) -> None:
    env = CountingEnv()
    open_files = OpenFiles(env, small_cache(1))
    with open_files.lend(files[0]) as first:
        for path in files[1:]:
            with open_files.lend(path):
                pass
        assert first.pread(1, position=0) == b"a"
    assert env.open_names() == ["a"]


def test_closing_waits_for_files_in_use(files: list[str]) -> None:
    env = CountingEnv()
    open_files = OpenFiles(env, small_cache(4))
    with open_files.lend(files[0]) as first:
        with open_files.lend(files[1]):
            pass
        open_files.close()
        assert env.open_names() == ["a"]
        assert first.pread(1, position=0) == b"a"
        with pytest.raises(LogClosedError, match="was closed before"), open_files.lend(files[1]):
            pass
    assert env.open_names() == []


def test_file_that_was_being_opened_while_the_log_was_closed_is_closed_too(files: list[str]) -> None:
    class ClosingEnv(CountingEnv):
        def open_read(self, path: str) -> LocalFile:
            opened = super().open_read(path)
            open_files.close()
            return opened

    env = ClosingEnv()
    open_files = OpenFiles(env, small_cache(4))
    with pytest.raises(LogClosedError, match="was closed before"):
        open_files.pread_of(files[0])
    assert env.open_names() == []


def test_files_whose_closing_was_interrupted_are_closed_with_the_last_reference(files: list[str]) -> None:
    class InterruptedCache(SharedCache[LocalFile]):
        def release(self, owner: object) -> None:  # noqa: ARG002
            raise KeyboardInterrupt

    env = CountingEnv()
    open_files = OpenFiles(env, InterruptedCache(limit=4, weigh=lambda _: 1, drop=LocalFile.close))
    with open_files.lend(files[0]):
        pass
    with pytest.raises(KeyboardInterrupt):
        open_files.close()
    assert env.open_names() == ["a"]
    del open_files
    assert env.open_names() == []


def test_logs_sharing_a_cache_do_not_share_files(files: list[str]) -> None:
    """A later log may find another file under the same name, as compaction leaves it."""
    env, cache = CountingEnv(), small_cache(4)
    earlier, later = OpenFiles(env, cache), OpenFiles(env, cache)
    with earlier.lend(files[0]):
        pass
    replacement = Path(files[1])
    replacement.rename(files[0])
    with earlier.lend(files[0]) as old, later.lend(files[0]) as new:
        assert (old.pread(1, position=0), new.pread(1, position=0)) == (b"a", b"b")
    earlier.close()
    with later.lend(files[0]) as new:
        assert new.pread(1, position=0) == b"b"


ALLOCATIONS = [
    pytest.param(0, 0, 1024, id="nothing"),
    pytest.param(0, 1000, 1024, id="less-than-there-is"),
    pytest.param(4096, 4096, 1024, id="empty-range"),
    pytest.param(0, 5000, 5000, id="from-the-start"),
    pytest.param(1024, 5000, 5000, id="from-the-end"),
    pytest.param(4096, 8192, 8192, id="over-a-hole"),
]


@pytest.mark.parametrize("has_fallocate", [True, False], ids=["fallocate", "truncate"])
@pytest.mark.parametrize(("position", "size", "expected"), ALLOCATIONS)
def test_allocation_lengthens_by_zeros_and_keeps_what_is_there(
    file: Path, position: int, size: int, expected: int, has_fallocate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_fallocate:
        monkeypatch.delattr(env_module.os, "posix_fallocate")
    with DEFAULT_ENV.open_write(str(file)) as opened:
        opened.allocate(size, position=position)
    assert file.read_bytes() == CONTENT + bytes(expected - len(CONTENT))


def test_allocated_step_takes_space_at_once(file: Path) -> None:
    with DEFAULT_ENV.open_write(str(file)) as opened:
        opened.truncate(1 << 20)
        before = file.stat().st_blocks
        opened.allocate(1 << 20, position=1 << 19)
    assert file.stat().st_blocks - before >= (1 << 19) // 512


@pytest.mark.parametrize("has_call", [True, False])
@pytest.mark.parametrize(("position", "size"), [(0, 0), (0, 1024), (1, 1022), (0, 8192), (4096, 1 << 20)])
def test_write_back_may_be_asked_for_anywhere_and_changes_no_byte(
    file: Path, position: int, size: int, has_call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_call:
        monkeypatch.setattr(env_module, "_sync_file_range", lambda: None)
    with DEFAULT_ENV.open_write(str(file)) as opened:
        opened.start_write_back(size, position=position)
    assert file.read_bytes() == CONTENT


CODES_OF_WRITE_BACK = [
    *((code, False) for code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ESPIPE)),
    *((code, True) for code in (errno.EIO, errno.ENOSPC, errno.EBADF)),
]


@pytest.mark.parametrize(("code", "is_error"), CODES_OF_WRITE_BACK)
def test_only_a_failure_of_the_disk_fails_a_write_back(
    file: Path, code: int, is_error: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(fd: int, *, position: int, size: int) -> int:
        asked.append((position, size))
        return code

    monkeypatch.setattr(env_module, "_sync_file_range", lambda: refuse)
    with DEFAULT_ENV.open_write(str(file)) as opened:
        if is_error:
            with pytest.raises(StorageError) as caught:
                opened.start_write_back(9000, position=100)
            assert caught.value.errno == code
        else:
            opened.start_write_back(9000, position=100)
    assert asked == [(100, 8092)]


def test_lock_is_held_until_closed(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = DEFAULT_ENV.lock_file(path)
    assert lock is not None
    assert DEFAULT_ENV.lock_file(path) is None
    with open(path, "rb"):
        pass
    assert DEFAULT_ENV.lock_file(path) is None, "closing another opening of the file must not unlock it"
    lock.close()
    lock.close()
    again = DEFAULT_ENV.lock_file(path)
    assert again is not None
    again.close()
    assert os.path.exists(path)


def test_refused_lock_leaves_no_descriptor_open(tmp_path: Path) -> None:
    lock = DEFAULT_ENV.lock_file(str(tmp_path / ".lock"))
    assert lock is not None
    before = os.listdir("/proc/self/fd")
    assert DEFAULT_ENV.lock_file(str(tmp_path / ".lock")) is None
    assert os.listdir("/proc/self/fd") == before
    lock.close()


@pytest.mark.parametrize("make", [NOT_FILES[0], NOT_FILES[2]])
def test_what_is_no_regular_file_is_not_locked(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / ".lock")
    with pytest.raises(StorageError, match="cannot open"):
        DEFAULT_ENV.lock_file(str(tmp_path / ".lock"))


def test_failed_locking_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(local_module.fcntl, "fcntl", fail)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(StorageError, match="cannot lock") as caught:
        DEFAULT_ENV.lock_file(str(tmp_path / ".lock"))
    assert caught.value.errno == errno.ENOLCK
    assert os.listdir("/proc/self/fd") == before


def test_directory_is_made_once(tmp_path: Path) -> None:
    path = str(tmp_path / "t-0")
    assert DEFAULT_ENV.make_directory(path)
    assert not DEFAULT_ENV.make_directory(path)


@pytest.mark.parametrize(
    ("name", "code"), [("file", errno.EEXIST), ("missing/below", errno.ENOENT)], ids=["a-file", "no-parent"]
)
def test_directory_that_cannot_be_made_is_a_storage_error(file: Path, name: str, code: int) -> None:
    path = str(file.parent / name)
    with pytest.raises(StorageError, match=f"cannot make directory {path}") as caught:
        DEFAULT_ENV.make_directory(path)
    assert caught.value.errno == code


def test_clocks_count_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_999_999)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5_999_999)
    assert (DEFAULT_ENV.wall_clock_ms(), DEFAULT_ENV.monotonic_ms()) == (1_700_000_000_123, 5)
    assert DEFAULT_ENV.process_id() == os.getpid()


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b-0", "/a/b-0"), ("/a/b-0/", "/a/b-0"), ("/a/./b-0/.", "/a/b-0"), (Path("/a/b-0"), "/a/b-0"), ("/", "/")],
)
def test_absolute_path_has_no_trailing_slash_or_dots(path: str | Path, expected: str) -> None:
    assert absolute_path(path) == expected


def test_absolute_path_starts_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_path("x-0") == str(tmp_path / "x-0")
    assert absolute_path(".") == str(tmp_path)


def test_bytes_are_no_path() -> None:
    with pytest.raises(TypeError, match="str"):
        absolute_path(b"/a/b-0")


def test_path_list_tells_one_path_from_many() -> None:
    assert path_list("ab") == ["ab"]
    assert path_list(Path("ab")) == [Path("ab")]
    assert path_list(("a", Path("b"))) == ["a", Path("b")]


def test_file_closed_while_it_is_read_is_closed_behind_the_read(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DEFAULT_ENV.open_read(files[0])
    opened, pread, closed = file._fd, os.pread, []

    def closing(fd: int, size: int, position: int) -> bytes:
        file.close()
        assert fd not in closed
        return pread(fd, size, position)

    close = os.close
    monkeypatch.setattr(os, "pread", closing)
    monkeypatch.setattr(os, "close", lambda fd: (closed.append(fd), close(fd)))
    assert file.pread(9, position=0) == b"a"
    assert closed == [opened]
    with pytest.raises(LogClosedError):
        file.pread(9, position=0)
    assert closed == [opened]


def test_only_an_empty_directory_is_removed(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "file").write_bytes(b"")
    assert [DEFAULT_ENV.remove_directory(str(path)) for path in (empty, empty, full)] == [True, False, False]
    assert (full / "file").exists()
    with pytest.raises(StorageError, match="remove directory"):
        DEFAULT_ENV.remove_directory(str(full / "file"))


@pytest.mark.parametrize("cut", [0, 1, 3, 7], ids=lambda cut: f"{cut} parts" if cut else "a buffer")
def test_large_write_is_several_calls_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    sizes: list[int] = []
    write, write_parts = os.pwrite, os.pwritev

    def pwrite(fd: int, data: bytes, position: int) -> int:
        sizes.append(len(data))
        return write(fd, data, position)

    def pwritev(fd: int, parts: list[bytes], position: int) -> int:
        sizes.append(sum(map(len, parts)))
        return write_parts(fd, parts, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "pwritev", pwritev)
    content = os.urandom(5 * WRITE_BYTES // 2)
    step = -(-len(content) // max(cut, 1))
    parts = [memoryview(content)[at : at + step] for at in range(0, len(content), step)]
    with DEFAULT_ENV.open_write(str(tmp_path / "f")) as file:
        if cut:
            file.pwritev(parts, position=0, size=len(content))
        else:
            file.pwrite(memoryview(content), position=0)
    assert (tmp_path / "f").read_bytes() == content
    assert sum(sizes) == len(content)
    assert max(sizes) <= WRITE_BYTES
