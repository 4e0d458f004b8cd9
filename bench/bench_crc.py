"""CRC-32C over distinct chunks of 16 KiB. A single chunk would stay in the cache, unlike real batches.

Measured: `kstore._core.crc32c`, one call for each distinct 16 KiB chunk of 64 MiB.
Compared with: the `crc32c` and `google-crc32c` wheels; `limit.c`; Java and Rust.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

import crc32c

from bench.common import Case, Contestant, Settings, interleaved, require_equal, without_result
from bench.data import PartitionSpec, partition
from bench.limit import Limit, compile_limit, padded
from bench.other_languages import JAVA, RUST, Rivals
from kstore import _core

CHUNK_BYTES = 16 * 1024
KSTORE = "kstore"
WHEEL = "crc32c wheel"
LIMIT = "limit.c, whole batches"
TARGET_OF_WHEEL = 1.0


def implementations() -> dict[str, Callable[[bytes], int]]:
    """Return the installed CRC functions by name."""
    found: dict[str, Callable[[bytes], int]] = {KSTORE: _core.crc32c, WHEEL: crc32c.crc32c}
    try:
        found["google-crc32c"] = importlib.import_module("google_crc32c").value
    except ImportError:
        print("google-crc32c left out: not installed")
    return found


def run(settings: Settings) -> Iterator[Case]:
    """Time the CRC functions in interleaved rounds over the chunks of one segment."""
    spec = PartitionSpec(name="bench-0", value_bytes=100, segment_bytes=settings.segment_bytes)
    file = partition(spec, settings.data_directory).log_files[0]
    segment = file.read_bytes()
    chunks = [segment[at : at + CHUNK_BYTES] for at in range(0, len(segment), CHUNK_BYTES)]
    functions = implementations()
    require_equal("CRC of every chunk", {name: [f(chunk) for chunk in chunks] for name, f in functions.items()})

    contestants = [Contestant(name, over(function, chunks), len(segment)) for name, function in functions.items()]
    library = compile_limit(settings)
    if library is not None:
        limit = Limit(library, padded(segment), column_bytes=CHUNK_BYTES)
        require_equal("bytes under a right CRC", {"file": len(segment), "limit.c": limit.check_crcs()})
        contestants.append(
            Contestant("limit.c, whole batches, no call for each", without_result(limit.check_crcs), len(segment))
        )
    case = Case(title=f"CRC-32C, {len(chunks)} distinct chunks of 16 KiB", unit="B", bytes_per_unit=1)
    with Rivals(settings, file, ("crc",)) as rivals:
        contestants += rivals.contestants(len(segment), expected_sum=len(segment))
        case.samples = interleaved(contestants, settings, cpu_seconds=rivals.cpu_seconds)
    case.add_ratio(KSTORE, WHEEL, target=TARGET_OF_WHEEL)
    case.add_ratio(KSTORE, "google-crc32c")
    case.add_ratio(KSTORE, LIMIT)
    for language in (JAVA, RUST):
        case.add_ratio(KSTORE, f"{language}, crc")
    case.notes.append(f"kstore uses {_core.CRC32C_PATHS[0]}")
    yield case


def over(function: Callable[[bytes], int], chunks: list[bytes]) -> Callable[[], None]:
    """Return a function that calls a CRC function on each chunk."""

    def run_once() -> None:
        for chunk in chunks:
            function(chunk)

    return run_once
