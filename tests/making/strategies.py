"""Hypothesis strategies: any records, batches of any codec, logs with gaps, control and emptied batches."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from tests.reference import codec as reference
from tests.reference.codec import CREATE_TIME, Record

INT64 = st.integers(-(2**63), 2**63 - 1)
MOST_TIMESTAMP_MS = (2**63 - 1) // 1000
CODECS = st.integers(0, 4)


def examples(count: int, **options: Any) -> settings:
    """Return the settings of a property whose examples are costly: so many, ten times as many in the long profile."""
    return settings(max_examples=count * (10 if settings.get_current_profile_name() == "long" else 1), **options)


payloads = st.one_of(
    st.none(),
    st.just(b""),
    st.binary(max_size=40),
    st.sampled_from(
        [b"x" * 12, b"x" * 13, b"y" * 63, b"y" * 64, b"z" * 8191, b"z" * 8192, "ä€😀".encode(), b"\xff\xfe"]
    ),
)
header_keys = st.one_of(
    st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=6)
)
headers = st.lists(st.tuples(header_keys, payloads), max_size=4).map(tuple)


def timestamps(*, most_ms: int = 2**63 - 1) -> st.SearchStrategy[int]:
    return st.one_of(
        st.just(-1),
        st.integers(1_600_000_000_000, 1_600_000_100_000),
        st.integers(-1000, 1000),
        st.integers(-most_ms, most_ms),
    )


@st.composite
def record_lists(draw: st.DrawFn, *, base_offset: int, max_count: int = 8, most_ms: int = 2**63 - 1) -> list[Record]:
    """At least one record at or above base_offset, often without a gap."""
    count = draw(st.integers(1, max_count))
    gaps = st.one_of(st.just(0), st.integers(0, 5), st.sampled_from([63, 64, 8191, 2**20]))
    stamps = timestamps(most_ms=most_ms)
    offset = base_offset + draw(gaps)
    out = []
    for _ in range(count):
        out.append(Record(offset, draw(stamps), CREATE_TIME, draw(payloads), draw(payloads), draw(headers)))
        offset += 1 + draw(gaps)
    return out


# A producer's timestamps are not negative; header keys are text for other builders.
producer_record_lists = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 2**61),
        timestamp_type=st.just(CREATE_TIME),
        sequence=st.just(-1),
        is_control=st.just(False),
        key=payloads,
        value=payloads,
        headers=st.lists(st.tuples(st.text(max_size=5).map(str.encode), payloads), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
).map(lambda records: [record._replace(offset=n) for n, record in enumerate(records)])


@st.composite
def batch_options(draw: st.DrawFn, *, most_ms: int = 2**63 - 1) -> dict[str, Any]:
    """Options of reference.write_batch that any batch of records may have."""
    options: dict[str, Any] = {
        "codec": draw(CODECS),
        "partition_leader_epoch": draw(st.integers(-1, 5)),
        "is_transactional": draw(st.booleans()),
        "record_attributes": draw(st.sampled_from([0, 0, 1, 255])),
    }
    kind = draw(st.sampled_from(["plain", "plain", "append time", "horizon"]))
    if kind == "append time":
        options["log_append_time_ms"] = draw(timestamps(most_ms=most_ms))
    elif kind == "horizon":
        options["delete_horizon_ms"] = draw(st.integers(0, 2**42))
    if draw(st.booleans()):
        options["producer_id"] = draw(st.integers(0, 2**40))
        options["producer_epoch"] = draw(st.integers(0, 2**15 - 1))
        options["base_sequence"] = draw(st.sampled_from([0, 1, 2**31 - 3, 2**31 - 1]))
    return options


@st.composite
def batches(draw: st.DrawFn, *, base_offset: int = 0, most_ms: int = 2**63 - 1) -> bytes:
    """One batch at or above base_offset: records, or now and then a marker or an emptied batch."""
    kind = draw(st.sampled_from(["records"] * 8 + ["marker", "emptied"]))
    if kind == "emptied":
        last_offset = base_offset + draw(st.integers(0, 9))
        return reference.write_empty_batch(base_offset, last_offset=last_offset, max_timestamp_ms=5)
    if kind == "marker":
        return reference.write_end_transaction_marker(
            base_offset, timestamp_ms=7, producer_id=3, producer_epoch=0, commit=draw(st.booleans())
        )
    records = draw(record_lists(base_offset=base_offset, most_ms=most_ms))
    options = draw(batch_options(most_ms=most_ms))
    if draw(st.booleans()):
        options["base_offset"] = base_offset
        options["last_offset"] = records[-1].offset + draw(st.integers(0, 3))
    return reference.write_batch(records, **options)


@st.composite
def batch_lists(draw: st.DrawFn, *, max_batches: int = 5, most_ms: int = 2**63 - 1) -> list[bytes]:
    """Batches whose offsets rise."""
    next_offset = draw(st.sampled_from([0, 0, 7, 2**31 - 2, 2**40]))
    out = []
    for _ in range(draw(st.integers(0, max_batches))):
        data = draw(batches(base_offset=next_offset, most_ms=most_ms))
        out.append(data)
        next_offset = reference.Header.unpack(data).last_offset + 1 + draw(st.sampled_from([0, 0, 1, 100]))
    return out


def logs(*, max_batches: int = 5, most_ms: int = 2**63 - 1) -> st.SearchStrategy[bytes]:
    """Batches one behind the other, as bytes."""
    return batch_lists(max_batches=max_batches, most_ms=most_ms).map(b"".join)
