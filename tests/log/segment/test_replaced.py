"""Goal: damage that a reader met is told apart from a change of the file since it was listed, and from nothing else.
Method: one file and one error at a time, each with the change that explains it, or almost explains it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import FileStatus, LocalEnv, is_settled
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    InvalidRecordError,
    KStoreError,
    LogReplacedError,
    MemoryLimitError,
    StorageError,
    UnsupportedCompressionTypeError,
    UnsupportedMagicError,
)
from kstore.log.segment.replaced import ListedFile, change_that_caused
from kstore.store.opening import open_log
from tests.fakes.counting import CountingEnv
from tests.making.batches import batch, batches, flip_bit, with_fields, write_partition
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codecs

BATCHES = batches(0, 5, value_bytes=50)
STARTS = [sum(map(len, BATCHES[:at])) for at in range(6)]
OLD_NS = 1_600_000_000 * 10**9
NEXT = 5


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The .log of the first of two segments."""
    directory = write_partition(tmp_path, [BATCHES, batches(NEXT, 5)])
    return directory / f"{0:020d}.log"


def listed(log: Path, *, env: LocalEnv | None = None, next_base_offset: int | None = NEXT) -> ListedFile:
    env = LocalEnv() if env is None else env
    status = env.stat(str(log))
    assert status is not None
    size = status.size_in_bytes
    return ListedFile(str(log), 0, next_base_offset, size, status.file, status, is_settled(status, env))


def settle(log: Path) -> None:
    """Make the file look as if it was written long ago."""
    os.utime(log, ns=(OLD_NS, OLD_NS))


def error_at(log: Path, position: int | None, kind: type[CorruptionError] = CorruptRecordError) -> CorruptionError:
    return kind("the CRC is wrong", path=str(log), position=position)


def found(error: KStoreError, one: ListedFile, env: LocalEnv | None = None) -> str | None:
    """Return what was found in place of the listed file, None if it is not changed."""
    change = change_that_caused(error, one, config=LogConfig(), env=LocalEnv() if env is None else env)
    return None if change is None else change.found or "no text"


def test_error_of_a_change_is_that_change(log: Path) -> None:
    error = LogReplacedError("gone", path=str(log))
    assert change_that_caused(error, listed(log), config=LogConfig(), env=LocalEnv()) is error
    assert change_that_caused(error, None, config=LogConfig(), env=LocalEnv()) is error


def test_file_that_was_not_listed_is_not_known_to_be_changed(log: Path) -> None:
    assert change_that_caused(error_at(log, 0), None, config=LogConfig(), env=LocalEnv()) is None


@pytest.mark.parametrize(("number", "text"), [(errno.ENOENT, "no file"), (errno.EIO, None)])
def test_read_that_fails_met_a_change_only_if_the_file_is_gone(log: Path, number: int, text: str | None) -> None:
    assert found(StorageError("failed", path=str(log), errno=number), listed(log)) == text


def replace_file(log: Path) -> None:
    content = log.read_bytes()
    log.unlink()
    # The new file must not get the inode of the old one.
    with (log.parent / "other").open("w"):
        log.write_bytes(content)


def remove_the_next(log: Path) -> None:
    log.with_name(f"{NEXT:020d}.log").unlink()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Path.unlink, "no file"),
        (replace_file, "another file"),
        (lambda log: os.truncate(log, STARTS[3] - 1), f"{STARTS[3] - 1} bytes"),
        (remove_the_next, "no segment at offset 5 after it"),
    ],
    ids=["removed", "replaced", "truncated", "next removed"],
)
def test_change_that_a_stat_shows_explains_damage(log: Path, change: Callable[[Path], object], text: str) -> None:
    flip_bit(log, STARTS[1] + 90, bit=0)
    settle(log)
    one = listed(log)
    change(log)
    assert (found(error_at(log, STARTS[1]), one) or "").startswith(text)


def test_last_segment_has_none_after_it(log: Path) -> None:
    flip_bit(log, STARTS[1] + 90, bit=0)
    remove_the_next(log)
    assert found(error_at(log, STARTS[1]), listed(log, next_base_offset=None)) is None


@pytest.mark.parametrize(("is_old", "reads"), [(True, 0), (False, 1)])
def test_damage_is_read_again_only_if_the_file_may_have_been_written(log: Path, is_old: bool, reads: int) -> None:
    flip_bit(log, STARTS[1] + 90, bit=0)
    if is_old:
        settle(log)
    env = CountingEnv()
    assert found(error_at(log, STARTS[1]), listed(log), env) is None
    assert sum(file.path.endswith(".log") for file in env.opened) == reads


def test_file_that_was_settled_and_is_written_since_is_read_again(log: Path) -> None:
    settle(log)
    one = listed(log)
    assert one.is_settled
    log.touch()
    assert found(error_at(log, STARTS[1]), one) == "other batches"


def test_settled_file_was_not_written_for_a_second() -> None:
    env = LocalEnv()
    now_ns = env.wall_clock_ms() * 10**6
    status = env.stat(__file__)
    assert status is not None

    def at(written_ns: int) -> FileStatus:
        return status._replace(identity=(*status.identity[:2], written_ns))

    assert not is_settled(at(now_ns - 5 * 10**8), env)
    assert is_settled(at(now_ns - 15 * 10**8), env)


def test_damage_without_a_position_is_not_read_again(log: Path) -> None:
    assert found(error_at(log, None), listed(log)) is None


@pytest.mark.parametrize("slot", range(5))
@pytest.mark.parametrize("damaged", range(5))
def test_damage_stays_damage_where_a_second_read_finds_it(log: Path, damaged: int, slot: int) -> None:
    flip_bit(log, STARTS[damaged] + 90, bit=0)
    expected = None if damaged == slot else "other batches"
    assert found(error_at(log, STARTS[slot]), listed(log)) == expected


@pytest.mark.parametrize("within", [1, len(BATCHES[1]) - 1])
def test_damage_reaches_from_the_start_of_its_batch_to_the_end(log: Path, within: int) -> None:
    flip_bit(log, STARTS[1] + 90, bit=0)
    assert found(error_at(log, STARTS[1] + within), listed(log)) is None


def test_error_past_the_end_of_the_file_is_of_another_file(log: Path) -> None:
    assert found(error_at(log, STARTS[5]), listed(log)) == "other batches"


def test_what_is_wrong_with_a_right_crc_is_no_change(log: Path) -> None:
    for error in (
        error_at(log, STARTS[1], InvalidRecordError),
        UnsupportedCompressionTypeError("codec", path=str(log), position=STARTS[1]),
        MemoryLimitError("too much", path=str(log), position=STARTS[1], limit=1, found=2),
    ):
        assert found(error, listed(log)) is None


def test_wrong_offset_inside_a_message_with_a_right_crc_is_no_change(tmp_path: Path) -> None:
    # The offset outside, which no CRC covers, names the segment; the one inside is what it was.
    inner = packed_entry(b"k", b"v", offset=15, magic=0)
    wrapper = write_wrapper([inner], magic=0, codec=codecs.GZIP, offset=1 << 40 | 15)
    path = tmp_path / "t-0" / f"{1 << 40 | 15:020d}.log"
    path.parent.mkdir()
    path.write_bytes(wrapper)
    with open_log(path.parent) as log, pytest.raises(CorruptRecordError, match="base offset not above"):
        list(log.read())


@pytest.mark.parametrize("has_bad_crc", [False, True], ids=["bad count", "bad CRC"])
def test_offsets_that_a_damaged_batch_before_made_wrong_are_no_change(log: Path, has_bad_crc: bool) -> None:
    wrong = with_fields(BATCHES[1], {"last_offset_delta": 1000}, repair_crc=not has_bad_crc)
    log.write_bytes(b"".join([BATCHES[0], wrong, *BATCHES[2:]]))
    assert found(error_at(log, STARTS[2]), listed(log)) is None
    assert found(error_at(log, STARTS[3]), listed(log)) == "other batches"


def test_magic_that_a_second_read_does_not_find_was_a_change(log: Path) -> None:
    error = UnsupportedMagicError("magic", path=str(log), position=STARTS[1], reason="r", expected="0 to 2", magic=9)
    assert found(error, listed(log)) == "other batches"


class WrittenEnv(LocalEnv):
    """Writes the file after each stat of it but the first, as often as there are contents."""

    def __init__(self, log: Path, contents: list[bytes]) -> None:
        self._log = log
        self._contents = contents
        self._stats = 0

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        if path == str(self._log):
            self._stats += 1
            if self._stats % 2 == 0 and self._contents:
                self._log.write_bytes(self._contents.pop(0))
        return super().stat(path, follow_symlinks=follow_symlinks)


def test_file_that_is_written_during_the_second_read_is_read_once_more(log: Path) -> None:
    sound, wrong = log.read_bytes(), bytearray(log.read_bytes())
    flip_bit(wrong, STARTS[1] + 90, bit=0)
    log.write_bytes(wrong)
    one = listed(log)
    grown = bytes(wrong) + batch(5, 1)
    assert found(error_at(log, STARTS[1]), one, WrittenEnv(log, [sound])) == "other batches"
    log.write_bytes(wrong)
    assert found(error_at(log, STARTS[1]), one, WrittenEnv(log, [grown] * 9)) is None


class FailingEnv(LocalEnv):
    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        raise StorageError(f"no answer about {path}, {follow_symlinks}", path=path, errno=errno.EIO)


def test_file_that_cannot_be_looked_at_is_not_known_to_be_changed(log: Path) -> None:
    one = listed(log)
    assert found(error_at(log, 0), one, FailingEnv()) is None
