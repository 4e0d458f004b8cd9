"""LogConfig: the settings of one log, under Kafka's names, with units and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
DAY_MS = 24 * 60 * 60 * 1000
# The default of a broker's transaction.max.timeout.ms.
MAX_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000

# The labels of kstore.compression.CompressionType.
CodecName: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
# What a topic may be set to (Kafka: compression.type): the codec of the producer's batch, none, or one codec.
TopicCompression: TypeAlias = Literal["producer", "uncompressed", CodecName]
CleanupPolicy: TypeAlias = Literal["delete", "compact", "compact,delete", "delete,compact"]

# The bytes of a key in a cleaner's map.
_KEY_BYTES = 24
# The least and greatest value of each number.
_LIMITS = {
    "read_chunk_bytes": (4 * KIB, MAX_INT32 // 2),
    "max_batch_bytes": (61, MAX_INT32 // 2),
    "max_decompressed_bytes": (1, MAX_INT32 // 2),
    "max_decrypted_bytes": (1, MAX_INT32),
    "time_index_proof_bytes": (0, MAX_INT32 // 2),
    "segment_bytes": (14, MAX_INT32),
    "segment_ms": (1, MAX_INT64),
    "segment_jitter_ms": (0, MAX_INT64),
    "segment_index_bytes": (12, MAX_INT32),
    "index_interval_bytes": (0, MAX_INT32),
    "max_message_bytes": (0, MAX_INT32),
    "message_format_magic": (0, 2),
    "message_timestamp_before_max_ms": (0, MAX_INT64),
    "message_timestamp_after_max_ms": (0, MAX_INT64),
    "flush_messages": (1, MAX_INT64),
    "flush_ms": (0, MAX_INT64),
    "producer_id_expiration_ms": (1, MAX_INT64),
    "retention_ms": (-1, MAX_INT64),
    "retention_bytes": (-1, MAX_INT64),
    "file_delete_delay_ms": (0, MAX_INT64),
    "delete_retention_ms": (0, MAX_INT64),
    "min_compaction_lag_ms": (0, MAX_INT64),
    "max_compaction_lag_ms": (1, MAX_INT64),
    "cleaner_dedupe_buffer_bytes": (KIB, 2**40),
    "cleaner_io_buffer_bytes": (KIB, MAX_INT32),
}
# Limits that None takes away, as -1 does.
_MAYBE_NEVER = ("retention_ms", "retention_bytes")
_RATIO_LIMITS = {
    "min_cleanable_dirty_ratio": (0.0, 1.0),
    "cleaner_dedupe_buffer_load_factor": (0.01, 0.99),
}
_CHOICES = {
    "compression_type": get_args(TopicCompression),
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
    "cleanup_policy": get_args(CleanupPolicy),
    "index_access": ("map", "read"),
}


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Settings of one log: sizes in bytes, times in milliseconds; the defaults are Kafka's where Kafka has the setting,
    except retention_ms: by default nothing is deleted because of its age.

    For reading:
        read_chunk_bytes: size of one pread of the .log file.
        max_batch_bytes: the largest batch that is read; a larger declared size counts as corruption. The default is
            Kafka's socket.request.max.bytes, because a broker cannot have received a larger batch.
        max_decompressed_bytes: the largest decompressed payload of one batch, and the limit of the Python objects for
            the headers of one record (1024 headers are always allowed).
        max_decrypted_bytes: the largest chunk of an encrypted segment in tiered storage that is read; its tag covers it
            as a whole, so that it takes this memory twice.
        time_index_proof_bytes: a lookup by timestamp walks the headers of up to this much of a segment to verify its
            time index.
    For writing, as the topic settings of the same names (segment.bytes and so on):
        segment_bytes, segment_ms, segment_jitter_ms, segment_index_bytes, index_interval_bytes, max_message_bytes,
        preallocate, compression_type, message_timestamp_type, message_timestamp_before_max_ms,
        message_timestamp_after_max_ms, flush_messages, flush_ms, cleanup_policy.
        message_format_magic: 0, 1 or 2 (message.format.version, up to Kafka 3.9).
        producer_id_expiration_ms: the broker's producer.id.expiration.ms.
    For retention and compaction, also as the topic settings of the same names:
        retention_ms, retention_bytes (-1, the default of both, or None for no limit), file_delete_delay_ms,
        delete_retention_ms, min_cleanable_dirty_ratio, min_compaction_lag_ms, max_compaction_lag_ms.
        cleaner_dedupe_buffer_bytes, cleaner_io_buffer_bytes, cleaner_dedupe_buffer_load_factor: the broker's
            log.cleaner.dedupe.buffer.size and so on, for one cleaner: memory of the key map (24 bytes for a key), of
            the buffers that are read and written, and the part of the map that may be used.
        index_access: how lookups in a log that this process has open for writing use the index files of its sealed
            segments: "map" searches them in a map, which takes no memory of the process and reads only the pages that a
            search touches, but a disk that fails to read a page ends the process (SIGBUS); "read" reads them whole.
            Indexes of a log that is only read are always read whole, since their owner may shorten them.
    Raises: ValueError for a value that Kafka also rejects; TypeError.
    Threads: immutable, safe.
    """

    read_chunk_bytes: int = MIB
    max_batch_bytes: int = 100 * MIB
    max_decompressed_bytes: int = 64 * MIB
    max_decrypted_bytes: int = 256 * MIB
    time_index_proof_bytes: int = 8 * MIB

    segment_bytes: int = GIB
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4 * KIB
    max_message_bytes: int = MIB + 12
    preallocate: bool = False
    compression_type: TopicCompression = "producer"
    message_format_magic: int = 2
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = MAX_INT64
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    cleanup_policy: CleanupPolicy = "delete"
    producer_id_expiration_ms: int = DAY_MS
    retention_ms: int = -1
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    cleaner_dedupe_buffer_bytes: int = 128 * MIB
    cleaner_io_buffer_bytes: int = 512 * KIB
    cleaner_dedupe_buffer_load_factor: float = 0.9
    index_access: Literal["map", "read"] = "map"

    def __post_init__(self) -> None:
        for name in _MAYBE_NEVER:
            if getattr(self, name) is None:
                object.__setattr__(self, name, -1)
        for name, (least, greatest) in _LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if not least <= value <= greatest:
                raise ValueError(f"{name} must be from {least} to {greatest}, got {value}")
        for name, (lowest, highest) in _RATIO_LIMITS.items():
            ratio = getattr(self, name)
            if not isinstance(ratio, int | float) or isinstance(ratio, bool):
                raise TypeError(f"{name} must be a number, got {ratio!r}")
            if not lowest <= ratio <= highest:
                raise ValueError(f"{name} must be from {lowest} to {highest}, got {ratio}")
        if int(self.cleaner_dedupe_buffer_bytes // _KEY_BYTES * self.cleaner_dedupe_buffer_load_factor) < 1:
            raise ValueError(
                f"cleaner_dedupe_buffer_bytes has room for no key of {_KEY_BYTES} bytes with a "
                f"cleaner_dedupe_buffer_load_factor of {self.cleaner_dedupe_buffer_load_factor}, got "
                f"{self.cleaner_dedupe_buffer_bytes}"
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ValueError(
                f"min_compaction_lag_ms must not be above max_compaction_lag_ms {self.max_compaction_lag_ms}, got "
                f"{self.min_compaction_lag_ms}"
            )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")

    @property
    def is_compacted(self) -> bool:
        """Whether cleanup.policy includes compact."""
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is rolled: a compacted log needs sealed segments after max_compaction_lag_ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms


_DEFAULT: Final = LogConfig()


def config_or_default(config: LogConfig | None) -> LogConfig:
    """Return `config`, or the defaults if it is None.

    Raises: TypeError.
    """
    if config is None:
        return _DEFAULT
    if not isinstance(config, LogConfig):
        raise TypeError(f"config must be a LogConfig, got {config!r}")
    return config


NO_BROKER: Final = "there is no broker to connect to, the store is the first argument"
_OF_NETWORKS = ("bootstrap_servers", "metadata_broker_list", "security_protocol", "api_version")


def unknown_setting(who: str, name: str, known: Iterable[str], *, advice: Mapping[str, str], where: str) -> TypeError:
    """Return the error for a setting that does not exist, with what to write instead: the nearest one, or the advice.

    Args: who: has the settings; known: their names; advice: what to do in place of a setting that other clients of
        Kafka have, by its name with underscores, besides those of their network; where: the settings are listed.
    """
    from difflib import get_close_matches

    asked = name.lower().replace(".", "_").replace("-", "_")
    nearest = get_close_matches(asked, known, n=1)
    if asked in _OF_NETWORKS:
        instead = f": {NO_BROKER}"
    elif asked in advice:
        instead = f": {advice[asked]}"
    else:
        instead = f": did you mean {nearest[0]!r}?" if nearest else f"; {where} lists them"
    return TypeError(f"{who} has no setting {name!r}{instead}")


def check_rate(max_bytes_per_second: float | None) -> None:
    """Raise ValueError, TypeError for a rate that is not above 0, or None for none."""
    if max_bytes_per_second is None:
        return
    if isinstance(max_bytes_per_second, bool) or not isinstance(max_bytes_per_second, int | float):
        raise TypeError(f"max_bytes_per_second must be a number or None, got {max_bytes_per_second!r}")
    if not max_bytes_per_second > 0:
        raise ValueError(f"max_bytes_per_second must be above 0, got {max_bytes_per_second}")
