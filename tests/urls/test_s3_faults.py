"""Goal: a store that fails is asked again a few times, then gives a typed error; no records of two objects are mixed.
Method: a real S3 server whose answers are replaced; objects that change between two requests."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore import Record, open_log
from kstore.env import filesystems, locate
from kstore.env.filesystems import MOST_ATTEMPTS
from kstore.errors import LogReplacedError, StorageError
from tests.fakes.s3 import SECRET, Fault, Request, S3Server, error, of_kind, silent, times
from tests.urls.conftest import FLIGHTS
from tests.urls.test_s3_reads import large_log

BUSY = error("503 Slow Down", "SlowDown", "Please reduce your request rate.")
EXPIRED = error("400 Bad Request", "ExpiredToken", f"The provided token {SECRET} has expired.")
DENIED = error("403 Forbidden", "AccessDenied", "Access Denied")
KEY = "flights/flights-lz4-0"


@pytest.mark.parametrize("kind", ["LIST", "HEAD", "GET"])
def test_busy_server_is_asked_again(server: S3Server, kind: str) -> None:
    with server.failing(times(2, of_kind(kind, BUSY))):
        assert kstore.scan(server.url(KEY)).to_table() == kstore.scan(FLIGHTS / "flights-lz4-0").to_table()


@pytest.mark.parametrize("kind", ["LIST", "GET"])
def test_server_that_stays_busy_is_a_storage_error_after_a_few_requests(server: S3Server, kind: str) -> None:
    with (
        server.failing(of_kind(kind, BUSY)),
        pytest.raises(StorageError, match=r"SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE"),
    ):
        kstore.scan(server.url(KEY)).to_table()
    assert server.count(kind) <= 2 * MOST_ATTEMPTS


@pytest.mark.parametrize(
    ("kind", "text"),
    [("LIST", "has expired"), ("HEAD", "HTTP status 400"), ("GET", "HTTP status 400|INTERNAL_FAILURE")],
)
def test_expired_credentials_are_a_storage_error_with_what_the_server_said(
    server: S3Server, kind: str, text: str
) -> None:
    """pyarrow does not keep the text of an answer to GET, and HEAD has none."""
    with server.failing(of_kind(kind, EXPIRED)), pytest.raises(StorageError, match=text) as caught:
        kstore.scan(server.url(KEY)).to_table()
    assert caught.value.path is not None
    assert caught.value.path.startswith("s3://backups/flights")
    assert SECRET not in f"{caught.value} {caught.value!r} {caught.value.__cause__}"


def test_refused_access_is_a_storage_error(server: S3Server) -> None:
    with server.failing(of_kind("LIST", DENIED)), pytest.raises(StorageError, match="ACCESS_DENIED"):
        open_log(server.url(KEY))


def test_checkpoint_that_cannot_be_read_is_not_taken_for_a_missing_one(server: S3Server) -> None:
    """Without it, a log would show records that were deleted."""

    def deny(request: Request) -> tuple[str, dict[str, str], bytes] | None:
        return DENIED if request.kind == "GET" and request.key.endswith("log-start-offset-checkpoint") else None

    with server.failing(deny), pytest.raises(StorageError, match="log-start-offset-checkpoint"):
        kstore.scan(server.url("flights"))


def test_server_that_does_not_answer_is_given_up(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "MOST_ATTEMPTS", 1)
    filesystems._made.cache_clear()
    url = server.url(KEY, options="&connect_timeout=1&request_timeout=1")
    with server.failing(silent(8)), pytest.raises(StorageError, match=r"cannot list|cannot read"):
        open_log(url)


def test_body_that_ends_early_is_a_storage_error_with_what_was_expected(server: S3Server) -> None:
    def short(request: Request) -> tuple[str, dict[str, str], bytes] | None:
        if request.kind != "GET" or ".log" not in request.key:
            return None
        first, _, last = request.range.removeprefix("bytes=").partition("-")
        return "206 Partial Content", {"Content-Length": str(int(last) + 1 - int(first))}, b"short"

    with server.failing(short), pytest.raises(StorageError, match=r"cannot read \d+ bytes at position 0 of s3://"):
        kstore.scan(server.url(KEY)).to_table()


def shortened(*, by: int) -> Fault:
    """Return a fault that leaves out the last bytes of an object's range, and tells a length that fits."""
    contents = {path.name: path.read_bytes() for path in (FLIGHTS / "flights-lz4-0").glob("*.log")}

    def shorten(request: Request) -> tuple[str, dict[str, str], bytes] | None:
        name = request.key.rpartition("/")[2]
        if request.kind != "GET" or name not in contents:
            return None
        first, last = (int(bound) for bound in request.range.removeprefix("bytes=").split("-"))
        headers = {"Content-Range": f"bytes {first}-{last}/{len(contents[name])}"}
        return "206 Partial Content", headers, contents[name][first : last + 1 - by]

    return shorten


@pytest.mark.parametrize("by", [1, 100])
def test_answer_that_is_shorter_than_it_says_is_asked_for_again(server: S3Server, by: int) -> None:
    with server.failing(times(MOST_ATTEMPTS - 1, shortened(by=by))):
        assert kstore.scan(server.url(KEY)).to_table() == kstore.scan(FLIGHTS / "flights-lz4-0").to_table()


@pytest.mark.parametrize("by", [1, 100])
def test_answers_that_stay_shorter_than_they_say_are_a_storage_error(server: S3Server, by: int) -> None:
    with (
        server.failing(shortened(by=by)),
        pytest.raises(StorageError, match=rf"asked {MOST_ATTEMPTS} times for \d+ bytes at position 0") as caught,
    ):
        kstore.scan(server.url(KEY)).to_table()
    assert caught.value.path is not None
    assert sum(one.kind == "GET" and one.key.endswith(".log") for one in server.requests) == MOST_ATTEMPTS


@pytest.mark.parametrize("last", [0xA5, 0x5A])
def test_last_byte_that_marks_a_missing_one_is_read_like_any_other(server: S3Server, last: int) -> None:
    server.put("marked/x", b"abc" + bytes([last]))
    env, path = locate(server.url("marked/x"))
    assert env.read_file(path, max_bytes=10) == b"abc" + bytes([last])


def test_object_that_gets_shorter_before_it_is_read_gives_nothing(server: S3Server) -> None:
    """The server answers with fewer bytes than were asked for; pyarrow does not say so."""
    path = next((FLIGHTS / "flights-lz4-0").glob("*.log"))
    server.put(f"shorter/flights-lz4-0/{path.name}", path.read_bytes())
    scan = kstore.scan(server.url("shorter"))

    def shorten(request: Request) -> None:
        if request.kind == "GET" and request.key.endswith(".log"):
            server.put(f"shorter/flights-lz4-0/{path.name}", path.read_bytes()[: -(1 << 16)])

    with server.failing(shorten), pytest.raises(LogReplacedError):
        scan.to_table()


@pytest.mark.parametrize("when", [1, 2, 4])
def test_object_that_is_replaced_while_it_is_read_mixes_no_records(server: S3Server, tmp_path: Path, when: int) -> None:
    """The other object has the same size, so that every range of it exists."""
    key = f"mixed-{when}"
    directory = large_log(server, tmp_path, key, mebibytes=26)
    log_path = next(directory.glob("*.log"))
    scan = kstore.scan(server.url(f"{key}-0"), columns=["value"])
    expected = kstore.scan(directory, columns=["value"]).to_table()["value"].to_pylist()
    changed = large_log_of_ones(tmp_path, mebibytes=26)
    assert len(changed) == log_path.stat().st_size
    seen = [0]

    def replace(request: Request) -> None:
        if request.kind == "GET" and request.key.endswith(".log"):
            seen[0] += 1
            if seen[0] == when:
                server.put(f"{key}-0/{log_path.name}", changed)

    values: list[bytes] = []
    with server.failing(replace), pytest.raises(LogReplacedError):
        values.extend(value for batch in scan for value in batch["value"].to_pylist())
    assert values == expected[: len(values)]


def large_log_of_ones(directory: Path, *, mebibytes: int) -> bytes:
    with open_log(directory / "ones-0", "a") as log:
        for number in range(mebibytes * 8):
            log.append([Record(value=b"\x01" * (128 * 1024 - 200), timestamp_ms=number)])
    return next((directory / "ones-0").glob("*.log")).read_bytes()


def test_object_that_is_removed_while_it_is_read_is_told_as_that(server: S3Server, tmp_path: Path) -> None:
    directory = large_log(server, tmp_path, "removed", mebibytes=18)
    name = next(directory.glob("*.log")).name
    scan = kstore.scan(server.url("removed-0"))
    seen = []

    def remove(request: Request) -> None:
        if request.kind == "GET" and request.key.endswith(".log") and not seen:
            seen.append(request)
            server.delete(f"removed-0/{name}")

    with server.failing(remove), pytest.raises(LogReplacedError, match=r"removed|replaced"):
        scan.to_table()
