"""Goal: a batch that somebody uses while its records are compressed comes to an error, never to wrong bytes.
Method: a builder whose own compression makes the call that another thread might make then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstore.record import MemoryRecordsBuilder

USES: dict[str, Callable[[MemoryRecordsBuilder], object]] = {
    "append": lambda builder: builder.append(timestamp_ms=2, value=b"late"),
    "build": lambda builder: builder.build(),
    "abort": lambda builder: builder.abort(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_use_of_a_batch_that_is_being_compressed_is_an_error_and_no_wrong_batch(
    use: Callable[[MemoryRecordsBuilder], object],
) -> None:
    """As another thread may use it, since compression releases the GIL."""
    uses = [use]

    class Used(MemoryRecordsBuilder):
        def compress_records(self, codec_id: int, records: memoryview, level: int | None) -> Any:
            if uses:
                uses.pop()(self)
            return super().compress_records(codec_id, records, level)

    builder = Used(compression="lz4").append(timestamp_ms=1, value=b"early")
    with pytest.raises(ValueError, match="while its records were compressed"):
        builder.build()
    if use is USES["abort"]:
        with pytest.raises(ValueError, match="aborted"):
            builder.build()
    else:
        expected = [b"early", b"late"] if use is USES["append"] else [b"early"]
        assert [record.value for record in builder.build()] == expected
