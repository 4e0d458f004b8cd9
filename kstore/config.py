"""LogConfig: the settings of one log, under Kafka's names, with units and limits. Layer 1."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Settings of one log; every size in bytes.

    read_chunk_bytes: size of one pread of the .log file.
    max_batch_bytes: largest batch that is read; a larger declared size is corruption. The default is
        Kafka's socket.request.max.bytes, above which a broker can't have received a batch.
    max_decompressed_bytes: largest decompressed payload of one batch.
    time_index_proof_bytes: a time lookup walks the headers of up to this much of a segment rather than believe what
        its time index says of them.
    """

    read_chunk_bytes: int = MIB
    max_batch_bytes: int = 100 * MIB
    max_decompressed_bytes: int = 64 * MIB
    time_index_proof_bytes: int = 8 * MIB

    def __post_init__(self) -> None:
        limits = {
            "read_chunk_bytes": 4 * KIB,
            "max_batch_bytes": 61,
            "max_decompressed_bytes": 1,
            "time_index_proof_bytes": 0,
        }
        for name, least in limits.items():
            value = getattr(self, name)
            if not least <= value <= MAX_INT32 // 2:
                raise ValueError(f"{name} must be from {least} to {MAX_INT32 // 2} bytes, got {value}")
