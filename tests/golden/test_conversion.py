"""Goal: logs that brokers wrote in old and mixed formats, converted to any format, hold the same records.
Method: each segment through FileRecords.to_format; the records before and after read by the reference codec."""

from __future__ import annotations

import pytest

from kstore.log import FileRecords
from kstore.record import MemoryRecords
from tests import reference_messages
from tests.differential.test_conversion import fitting
from tests.golden.manifests import manifest
from tests.golden.sets import MIXED_SET, OLD_FORMAT_SETS, GoldenPartition, golden_partitions

PARTITIONS = golden_partitions(*OLD_FORMAT_SETS, MIXED_SET)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_segment_converts_to_the_records_that_fit(partition: GoldenPartition, magic: int) -> None:
    for log in manifest(partition).logs:
        with FileRecords.open(partition.directory / log.name, is_read_only=True) as file:
            part = file.slice(position=0, size=log.valid_bytes)
            data = bytes(part.read())
            found = b"".join(map(bytes, part.to_format(magic)))
            assert file.has_compatible_magic(1) == all(batch.magic < 2 for batch in MemoryRecords(data).batches())
        expected = [
            fitting(record, magic=magic) if entry.magic != magic else record
            for entry in entries(data)
            for record in entry.records
            if magic == 2 or not record.is_control
        ]
        assert reference_messages.read_all(found) == expected


def entries(data: bytes) -> list[reference_messages.Entry]:
    found, at = [], 0
    while at < len(data):
        found.append(reference_messages.read_any(data, at))
        at += found[-1].size
    return found
