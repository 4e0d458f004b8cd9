"""The invariants: on any bytes the core and the reference agree, record for record or error for error.

Each target takes a mutator, makes one input and returns it; a broken invariant is a Disagreement.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kstore import _core
from kstore.compression import decompress
from kstore.errors import DecompressionError
from tests.fuzz.agreement import agree
from tests.fuzz.conversion_targets import CONVERSION_TARGETS
from tests.fuzz.message_mutator import MessageMutator
from tests.fuzz.mutator import Mutator
from tests.fuzz.packing_targets import PACKING_TARGETS
from tests.fuzz.serving_targets import SERVING_TARGETS
from tests.fuzz.tier_targets import TIER_TARGETS
from tests.fuzz.value_targets import VALUE_TARGETS
from tests.fuzz.wire_targets import WIRE_TARGETS
from tests.fuzz.writing_targets import WRITING_TARGETS
from tests.making import columns
from tests.making.blocks import Copy, lz4_block_of, snappy_block_of
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.verdicts import column_verdict, core_batch_verdict, expected_column_verdict, reference_verdict
from tests.reference.walk import Walk, header_at, walk

LIMIT = 1 << 16


def check_batch(data: bytes) -> None:
    """Records of one message, wrapper or batch, or the same class and position."""
    expected = reference_verdict(
        lambda: reference_messages.read_any(data, position=77, max_decompressed_bytes=LIMIT).records
    )
    agree("batch", data, found=core_batch_verdict(data, position=77, limit=LIMIT), expected=expected)


COLUMN_WISHES = (
    columns.ALL,
    columns.Wanted(key="view", value="view", headers=False),
    # Contents of lz4 share a buffer.
    columns.Wanted(key="view", value="view", headers=False, batch_bytes=1 << 19),
    columns.Wanted(key="copy", value="copy", headers=False),
    columns.Wanted(key="view", value=None, headers=False, batch_bytes=70, chunk_bytes=70),
    columns.Wanted(key="string", value="string", timestamp=False, batch_bytes=1, chunk_bytes=1),
)


def check_columns(data: bytes) -> None:
    """Rows of a run of batches, whatever the columns and chunks, or the same class and position."""
    for number, wanted in enumerate(COLUMN_WISHES):
        expected = expected_column_verdict(data, wanted, limit=LIMIT)
        agree(f"columns {number}", data, found=column_verdict(data, wanted, limit=LIMIT), expected=expected)


def check_scan(data: bytes) -> None:
    """The header-only walk stops at the same place for the same reason."""
    for stops in ({}, {"stop_offset": 4}, {"stop_timestamp_ms": 1_600_000_000_020}):
        agree("scan", data, found=scanned(data, **stops), expected=walk(data, **stops))


def scanned(data: bytes, **stops: Any) -> Walk:
    scan = _core.HeaderScan(position=0, end_position=len(data), max_batch_bytes=reference.MAX_BATCH_BYTES, **stops)
    at = 0
    while scan.status == "more":
        at = scan.feed(data[at : at + 100], at)
    return Walk(
        status=scan.status,
        position=scan.position,
        found=None if scan.found is None else header_at(data, scan.found.position),
        error=None if scan.error is None else type(scan.error).__name__,
        batch_count=scan.batch_count,
        record_count=scan.record_count,
        last_offset=scan.last_offset,
        max_timestamp_ms=scan.max_timestamp_ms,
        offset_of_max_timestamp=scan.offset_of_max_timestamp,
    )


def check_codec(codec: int, payload: bytes) -> None:
    """The content of a payload, or a DecompressionError."""
    found: bytes | str
    expected: bytes | str
    try:
        found = bytes(decompress(codec, payload, LIMIT))
    except DecompressionError:
        found = "DecompressionError"
    try:
        expected = codecs.decompress(codec, payload, limit=LIMIT)
    except codecs.UndecodableError:
        expected = "DecompressionError"
    agree(f"codec {codecs.CODEC_NAMES[codec]}", payload, found=found, expected=expected)


def batch_case(mutator: Mutator) -> None:
    check_batch(mutator.batch(base_offset=mutator.random.choice([0, 5, 2**40])))


def entry_case(mutator: MessageMutator) -> None:
    check_batch(mutator.entry(offset=mutator.random.choice([0, 5, 2**40])))


def mixed_columns_case(mutator: MessageMutator) -> None:
    check_columns(mutator.mixed_log())


def columns_case(mutator: Mutator) -> None:
    check_columns(mutator.log())


def scan_case(mutator: MessageMutator) -> None:
    check_scan(mutator.random.choice((mutator.log, mutator.mixed_log))())


def codec_case(mutator: Mutator) -> None:
    rng = mutator.random
    codec = rng.randint(1, 4)
    content = rng.choice([b"", rng.randbytes(60), rng.randbytes(9) * 30, bytes(LIMIT), bytes(LIMIT + 1)])
    payload = codecs.compress(codec, content)
    check_codec(codec, payload if rng.random() < 0.05 else mutator.raw(payload))


def block_case(mutator: Mutator) -> None:
    """A raw block of literals and copies of all sizes, some from before the start, then mutated or not."""
    rng = mutator.random
    elements: list[bytes | Copy] = [rng.randbytes(rng.choice([1, 70]))]
    is_lz4 = rng.random() < 0.5
    for _ in range(rng.randint(0, 40)):
        width = rng.choice([1, 2, 2, 4])
        most = 11 if width == 1 and not is_lz4 else rng.choice([20, 64, 64 if not is_lz4 else 5000])
        copy = Copy(rng.randint(0, rng.choice([8, 70, 300, 2047])), rng.randint(4, most), width)
        elements.append(rng.choice([rng.randbytes(rng.choice([1, 8, 16, 60, 61, 64, 65, 300])), copy, copy]))
    if is_lz4:
        block = lz4_block_of([*elements, rng.randbytes(rng.choice([4, 5, 100]))])
    else:
        size = sum(element.size if isinstance(element, Copy) else len(element) for element in elements)
        block = snappy_block_of(elements, size=size)
    block = block if rng.random() < 0.5 else mutator.raw(block)
    head = codecs.LZ4_MAGIC + b"\x60\x40\x82" + struct.pack("<I", len(block))
    check_codec(codecs.LZ4 if is_lz4 else codecs.SNAPPY, head + block + bytes(4) if is_lz4 else block)


TARGETS: dict[str, Callable[[MessageMutator], None]] = {
    "batch": batch_case,
    "columns": columns_case,
    "entry": entry_case,
    "mixed columns": mixed_columns_case,
    "scan": scan_case,
    "codec": codec_case,
    "block": block_case,
    **WRITING_TARGETS,
    **CONVERSION_TARGETS,
    **PACKING_TARGETS,
    **VALUE_TARGETS,
    **WIRE_TARGETS,
    **SERVING_TARGETS,
    **TIER_TARGETS,
}


def run_case(name: str, *, seed: int, number: int) -> None:
    """Run case `number` of a target; the input depends on nothing else."""
    TARGETS[name](MessageMutator(f"{name} {seed} {number}"))
