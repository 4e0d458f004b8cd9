"""Goal: however many objects a few KiB on disk may become, every public call takes bounded memory or says why it can't.

Method: partitions of one batch that inflates to some MiB of the smallest headers, records, messages or array elements.
One process runs each call in a child of its own and tells how far the child's largest resident size rose.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore import KStoreError, LogConfig, MemoryLimitError, MemoryRecords, open_log
from kstore.cli import main, render
from kstore.log.verify import verify
from kstore.record import down_convert, up_convert
from kstore.record.schemas.topics import decode_group_record
from kstore.spark.udfs.batch_arrays import unpack
from tests.making.batches import record
from tests.making.messages import packed_entry
from tests.reference import codecs as codecs
from tests.reference.codec import Header, encode_varint, read_records, seal, write_batch

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
HEADERS = 1_500_000
RECORDS = 120_000
MESSAGES = 80_000
ELEMENTS = 500_000
# Of 1 to 4 MiB of payload: as it is inflated, and again as it is decoded, the codec's own copies, and one part of the
# output. The objects that a bomb would become take more than twice that.
MOST_BYTES = 48 * MIB
LIMITED, FINE = "MemoryLimitError", "fine"
CONTROL = 0x20


def sized(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def header_bomb(header_count: int = HEADERS, *, attributes: int = 0, key: bytes = b"k", value: bytes = b"v") -> bytes:
    """One record with that many headers of an empty key and a null value, in gzip."""
    body = b"\0\0\0" + sized(key) + sized(value) + encode_varint(header_count) + b"\0\1" * header_count
    header = Header(
        attributes=codecs.GZIP | attributes, record_count=1, producer_id=1, producer_epoch=0, base_sequence=0
    )
    return seal(header, gzip.compress(sized(body), 1))


def record_bomb() -> bytes:
    """A million records with nothing in them."""
    payload = b"".join(sized(b"\0\0" + encode_varint(delta) + b"\1\1\0") for delta in range(RECORDS))
    header = Header(attributes=codecs.GZIP, record_count=RECORDS, last_offset_delta=RECORDS - 1)
    return seal(header, gzip.compress(payload, 1))


def message_bomb() -> bytes:
    """A wrapper around messages with nothing in them."""
    one = packed_entry(None, None, offset=0, magic=1)[8:]
    payload = gzip.compress(b"".join(offset.to_bytes(8, "big") + one for offset in range(MESSAGES)), 1)
    return packed_entry(payload, None, offset=MESSAGES - 1, magic=1, attributes=codecs.GZIP)


def element_bomb() -> tuple[bytes, bytes]:
    """Key and value of a record of __consumer_offsets whose group has members without a field."""
    key = b"\0\2" + b"\0\1g"
    members = ELEMENTS.to_bytes(4, "big") + b"\0\0\0\0" * ELEMENTS
    return key, b"\0\0" + b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + members


def element_batch() -> bytes:
    key, value = element_bomb()
    return write_batch([record(0, value, key)], codec=codecs.GZIP)


BOMBS: dict[str, Callable[[], bytes]] = {
    "headers": header_bomb,
    "marker": partial(header_bomb, attributes=CONTROL | 0x10, key=b"\0\0\0\1", value=bytes(6)),
    "records": record_bomb,
    "messages": message_bomb,
    "elements": element_batch,
}


def drain(found: Iterable[object]) -> None:
    for _ in found:
        pass


def command(*arguments: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        sys.argv = ["kstore", arguments[0], str(path), *arguments[1:]]
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  for the rest of the child
        # What went wrong is said on standard error and by the status.
        reader, writer = os.pipe()
        sys.stderr = os.fdopen(writer, "w")
        status = main()
        sys.stderr.flush()
        said = os.read(reader, 1 << 16).decode() if status else ""
        if "too much memory" in said:
            raise MemoryLimitError(said, limit=0, found=1)
        assert status == 0, said

    return run


def with_log(call: Callable[[kstore.Log], object]) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with open_log(path) as log:
            call(log)

    return run


def with_records(call: Callable[[MemoryRecords], object]) -> Callable[[Path], None]:
    return with_log(lambda log: call(MemoryRecords(log.fetch(0, 1 << 30).records)))


def append_recompressed(path: Path) -> None:
    data = (path / f"{0:020d}.log").read_bytes()
    with open_log(
        path.parent / "new-0", "a", config=LogConfig(compression_type="lz4", max_message_bytes=100 * MIB)
    ) as log:
        log.append(MemoryRecords(data))


def unpacked(records: MemoryRecords) -> None:
    columns = ["offset", "key", "headers"]
    (error,) = unpack(pa.array([bytes(records)]), columns, is_permissive=True).field("error").to_pylist()
    if error is not None:
        raise MemoryLimitError(error, limit=0, found=1)


CALLS: dict[str, Callable[[Path], None]] = {
    "open": with_log(lambda log: log.log_end_offset),
    "open a": lambda path: open_log(path, "a").close(),
    "read": with_log(lambda log: drain(log.read())),
    "read committed": with_log(lambda log: drain(log.read(isolation="read_committed"))),
    "offset for timestamp": with_log(lambda log: log.offset_for_timestamp(5)),
    "transactions": with_log(lambda log: log.transactions()),
    "plan": with_log(lambda log: log.plan()),
    "batches": with_log(lambda log: [len(batch) + batch.base_offset for batch in log.batches()]),
    "verify": with_log(lambda log: verify(log)),
    "arrow value": with_log(lambda log: drain(log.to_arrow_batches(columns=["value"]))),
    "arrow": with_log(lambda log: drain(log.to_arrow_batches())),
    "arrow view": with_log(lambda log: drain(log.to_arrow_batches(binary="view"))),
    "memory records": with_records(drain),
    "survey": with_records(lambda records: records.survey()),
    "down-convert": with_records(lambda records: drain(down_convert(records, magic=1))),
    "up-convert": with_records(lambda records: drain(up_convert(records, magic=2))),
    "append": append_recompressed,
    "unpack": with_records(unpacked),
    "ls": command("ls"),
    "ls exact": command("ls", "--exact"),
    "verify command": command("verify"),
    "recover": command("recover", "--dry-run"),
    "offsets": command("offsets", "--time", "latest"),
    "cat": command("cat"),
    "cat json": command("cat", "--json"),
    "cat since": command("cat", "--json", "--since", "1"),
    "dump": command("dump"),
    "dump json": command("dump", "--json"),
    "dump records": command("dump", "--records"),
    "dump records json": command("dump", "--records", "--json"),
    "dump groups": command("dump", "--offsets-decoder", "--json"),
}
# Those that make a header an object, or a column's value.
SHOWN = {
    *("read", "read committed", "arrow", "arrow view", "memory records", "append", "unpack"),
    *("cat", "cat json", "dump records", "dump records json", "dump groups"),
}
OF_MARKER = {"memory records", "dump records", "dump records json", "dump groups"}


def expected(bomb: str, call: str) -> str:
    if bomb == "headers":
        return LIMITED if call in SHOWN else FINE
    if bomb == "marker" and call == "append":
        return "InvalidRecordError"
    if bomb == "marker":
        return LIMITED if call in OF_MARKER else FINE
    return FINE


def measured(call: Callable[[Path], None], path: Path) -> tuple[str, int]:
    """Run the call in a child; return how it ended and how many bytes the child's largest resident size rose."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            call(path)
            ended = FINE
        except BaseException as error:  # noqa: BLE001  the parent is to see it
            ended = type(error).__name__ if isinstance(error, KStoreError) else repr(error)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(writer, json.dumps([ended, grown * (1 if sys.platform == "darwin" else 1024)]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    ended, grown = json.loads(said or '["crashed", 0]')
    return ended, grown


def costs(bomb: str, directory: Path) -> Iterator[tuple[str, str, int]]:
    data = BOMBS[bomb]()
    for number, (name, call) in enumerate(CALLS.items()):
        path = directory / str(number) / "t-0"
        path.mkdir(parents=True)
        (path / f"{0:020d}.log").write_bytes(data)
        yield name, *measured(call, path)


def print_costs(bomb: str, directory: str) -> None:
    """For a process of its own, in which the command shows smaller parts, as the bombs are small."""
    pa.array([b""])  # The first array of a process loads pandas, if it is there.
    render.MOST_RECORDS, render.MOST_RECORDS_BYTES, render.MOST_TEXT_BYTES = 8192, 4 * MIB, 4 * MIB
    sys.stdout.write(json.dumps(list(costs(bomb, Path(directory)))))


@pytest.mark.timeout(300)
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory")
@pytest.mark.parametrize("bomb", BOMBS)
def test_every_call_takes_bounded_memory_or_names_the_limit(bomb: str, tmp_path: Path) -> None:
    code = f"from tests.hostile import test_memory_bombs as it; it.print_costs({bomb!r}, {str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    assert {name: ended for name, ended, _ in found} == {name: expected(bomb, name) for name in CALLS}
    assert {name: grown for name, _, grown in found if grown > MOST_BYTES} == {}


def test_error_names_the_record_the_file_and_the_option(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    log_path = path / f"{0:020d}.log"
    first = write_batch([record(0)])
    data = first + (1).to_bytes(8, "big") + header_bomb(1025)[8:]
    log_path.write_bytes(data)
    config = LogConfig(max_decompressed_bytes=100_000)
    with open_log(path, config=config) as log:
        for read in (log.read, partial(log.to_arrow_batches, columns=["headers"])):
            with pytest.raises(MemoryLimitError) as caught:
                drain(read())
            error = caught.value
            assert (error.offset, error.base_offset, error.position) == (1, 1, len(first))
            assert (error.path, error.option) == (str(log_path), "max_decompressed_bytes")
            assert (error.limit, error.found) == (1024 * 192, 1025 * 192)
            assert str(error) == (
                f"headers take too much memory in record 0 (offset 1) of the batch at position {len(first)} of "
                f"{log_path} (base offset 1): expected at most 196608 bytes (max_decompressed_bytes), found 196800 for "
                "1025 headers; raise max_decompressed_bytes to read them"
            )
    with open_log(path, config=LogConfig(max_decompressed_bytes=1025 * 192)) as log:
        assert [len(one.headers) for one in log.read()] == [0, 1025]
        assert [len(table["headers"][-1]) for table in log.to_arrow_batches(columns=["headers"])] == [1025]


def test_any_limit_leaves_room_for_a_thousand_headers() -> None:
    data = write_batch([record(0, headers=[(b"k", b"v")] * 1024)])
    records = MemoryRecords(data, config=LogConfig(max_decompressed_bytes=1))
    assert [len(one.headers) for one in records] == [len(one.headers) for one in read_records(data)] == [1024]


def test_headers_can_be_left_out_of_records() -> None:
    (batch,) = MemoryRecords(write_batch([record(0, b"v", b"k", headers=[(b"h", b"")])])).batches()
    (one,) = batch.records(headers=False)
    assert (one.key, one.value, one.headers) == (b"k", b"v", ())
    (batch,) = MemoryRecords(header_bomb(400_000)).batches()
    assert next(batch.records(headers=False)).value == b"v"
    with pytest.raises(MemoryLimitError):
        next(batch.records())


def test_records_are_taken_up_to_a_number_and_a_size() -> None:
    data = write_batch([record(offset, b"." * 1000) for offset in range(5)])
    (batch,) = MemoryRecords(data).batches()
    records = batch.records()
    assert [one.offset for one in records.take(most_records=2, most_bytes=1 << 20)] == [0, 1]
    assert [one.offset for one in records.take(most_records=9, most_bytes=2000)] == [2, 3]
    assert [one.offset for one in records.take(most_records=9, most_bytes=1)] == [4]
    assert records.take(most_records=9, most_bytes=1) == []


def test_message_of_too_many_elements_is_refused_before_they_are_made() -> None:
    key, value = element_bomb()
    with pytest.raises(MemoryLimitError, match=r"members at byte 14 of .* takes too much memory"):
        decode_group_record(key, value)
