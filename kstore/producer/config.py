"""ProducerConfig: a producer's settings under Kafka's names, checked against each other; ProducerSettings: their types
as keyword arguments.

serializer_of and serialized apply the configured serializers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from kstore.compression import CompressionType, level_of
from kstore.config import MAX_INT32, MAX_INT64, MAX_TRANSACTION_TIMEOUT_MS, MIB, CodecName, unknown_setting
from kstore.errors import SerializationError, checked_int
from kstore.serializers import serializer as serializer_named
from kstore.types import SinkAck

if TYPE_CHECKING:
    from kstore.producer.interceptors import ProducerInterceptor
    from kstore.producer.partitioner import Partitioner
    from kstore.serializers import Serializer


def serializer_of(given: Serializer | str | None) -> Serializer | None:
    """Return a callable or None unchanged, a built-in serializer by its name.

    Raises: ValueError for an unknown name.
    """
    return serializer_named(given) if isinstance(given, str) else given


def serialized(name: str, data: Any, serializer: Serializer | None, topic: str) -> bytes | None:
    """Return a key or value as bytes, None for null.

    Args: name: "key" or "value", for messages; serializer: None to accept bytes and other buffers as they are.
    Raises: SerializationError if the serializer fails or returns no bytes, or if there is none and the data is no
    buffer.
    """
    try:
        made = data if serializer is None else serializer(data)
    except Exception as error:
        raise SerializationError(f"{name} of a record for {topic!r}: {error}") from error
    if made is None or type(made) is bytes:
        return made
    try:
        return bytes(memoryview(made))
    except TypeError as error:
        origin = f"without a {name}_serializer" if serializer is None else f"from {serializer!r}"
        advice = ""
        if isinstance(made, str):
            advice = ": encode it first, as by text.encode()"
            if serializer is None:
                advice += f', or create the producer with {name}_serializer="string"'
        raise SerializationError(
            f"{name} of a record for {topic!r}: expected bytes or None, found {type(made).__name__} {origin}{advice}"
        ) from error


Acks: TypeAlias = Literal["buffered", "written", "flushed", "0", "1", "all", "-1", 0, 1, -1]

MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5

_ACKS: dict[str, SinkAck] = {
    "buffered": "buffered",
    "written": "written",
    "flushed": "flushed",
    "0": "buffered",
    "1": "written",
    "all": "written",
    "-1": "written",
}


class _Unset(int):
    """The type of a default, to tell it apart from an equal number given by the caller."""


_DELIVERY_TIMEOUT_MS = _Unset(120_000)

# The minimum and maximum of each number, as in Kafka's ProducerConfig.
_LIMITS = {
    "batch_size": (0, MAX_INT32),
    "linger_ms": (0, MAX_INT64),
    "buffer_memory": (0, MAX_INT64),
    "max_block_ms": (0, MAX_INT64),
    "delivery_timeout_ms": (0, MAX_INT32),
    "request_timeout_ms": (0, MAX_INT32),
    "retries": (0, MAX_INT32),
    "retry_backoff_ms": (0, MAX_INT64),
    "retry_backoff_max_ms": (0, MAX_INT64),
    "max_request_size": (0, MAX_INT32),
    "max_in_flight_requests_per_connection": (1, MAX_INT32),
    "metadata_max_age_ms": (0, MAX_INT64),
    "partitioner_availability_timeout_ms": (0, MAX_INT64),
    "transaction_timeout_ms": (1, MAX_TRANSACTION_TIMEOUT_MS),
}
_FLAGS = ("enable_idempotence", "partitioner_adaptive_partitioning_enable", "partitioner_ignore_keys")
_TEXTS = ("client_id", "transactional_id")
# What other producers of Kafka call by names that are not near, or have and kstore does not.
_ADVICE = {
    "queue_buffering_max_ms": "did you mean 'linger_ms'?",
    "queue_buffering_max_kbytes": "did you mean 'buffer_memory', in bytes?",
    "message_timeout_ms": "did you mean 'delivery_timeout_ms'?",
    "message_max_bytes": "did you mean 'max_request_size'?",
    "on_delivery": "send() takes on_delivery, for each record",
}


class UntypedSettings(TypedDict, total=False):
    """The settings of a Producer but its serializers, which give it its types."""

    acks: Acks
    batch_size: int
    buffer_memory: int
    client_id: str
    compression_type: CodecName
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    delivery_timeout_ms: int
    enable_idempotence: bool | None
    interceptor_classes: Sequence[ProducerInterceptor | type[ProducerInterceptor]]
    linger_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    metadata_max_age_ms: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_class: Partitioner | type[Partitioner] | None
    partitioner_ignore_keys: bool
    request_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    transaction_timeout_ms: int
    transactional_id: str | None


class ProducerSettings(UntypedSettings, total=False):
    """The settings of ProducerConfig as the keyword arguments of a Producer, each optional; for type checkers."""

    key_serializer: Serializer | str | None
    value_serializer: Serializer | str | None


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer; sizes in bytes, times in milliseconds, names and defaults as in Kafka 4.0.

    Args:
        acks: what has happened to a record when its future is done. "buffered" (Kafka's 0): it was passed to the sink,
            and nothing more is known. "written" (1, and all: there is only one replica): it is in the log and survives
            the end of the process. "flushed": it survives a power failure; Kafka leaves that to replication.
        batch_size: of a batch, uncompressed; 0 sends every record in a batch of its own.
        buffer_memory: for all records waiting to be sent; send() blocks up to max_block_ms when it is used up.
        delivery_timeout_ms: from send() to success or failure; the default rises to linger_ms + request_timeout_ms if
            that is greater.
        enable_idempotence: None enables it unless retries is 0 or acks is "buffered".
        compression_gzip_level, compression_lz4_level, compression_zstd_level: None for Kafka's default.
        compression_type: a codec, "none" by default.
        partitioner_class: a Partitioner, or a class of one; None for the built-in partitioner.
        partitioner_ignore_keys: whether the built-in one takes no account of keys.
        partitioner_adaptive_partitioning_enable: whether it chooses partitions with short queues more often (KIP-794).
        partitioner_availability_timeout_ms: partitions of a node that accepts nothing for so long are not chosen; 0
            for no limit.
        retry_backoff_ms, retry_backoff_max_ms: the first and the longest pause before a batch is sent again.
        max_in_flight_requests_per_connection: batches of one partition in a call of the sink.
        max_request_size: of a record, and of all batches in a call of the sink.
        interceptor_classes: objects or classes of ProducerInterceptor; client_id: names the sending thread.
        transaction_timeout_ms: a transaction that is open for longer is aborted.
        key_serializer, value_serializer: any callable, or the name of one of kstore.serializers ("string", or Kafka's
            class name); None accepts bytes and other buffers.
        transactional_id: enables transactions; a new producer fences the previous one with the same id.
        metadata_max_age_ms: the age at which the list of partitions is requested again.
    Raises: ValueError for a value that Kafka refuses, and for settings that contradict each other; TypeError.
    Threads: immutable, safe.
    """

    acks: Acks = "all"
    batch_size: int = 16384
    buffer_memory: int = 32 * MIB
    client_id: str = ""
    compression_type: CodecName = "none"
    compression_gzip_level: int | None = None
    compression_lz4_level: int | None = None
    compression_zstd_level: int | None = None
    delivery_timeout_ms: int = _DELIVERY_TIMEOUT_MS
    enable_idempotence: bool | None = None
    interceptor_classes: Sequence[ProducerInterceptor | type[ProducerInterceptor]] = ()
    key_serializer: Serializer | str | None = None
    value_serializer: Serializer | str | None = None
    linger_ms: int = 5
    max_block_ms: int = 60_000
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = MIB
    metadata_max_age_ms: int = 300_000
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = 0
    partitioner_class: Partitioner | type[Partitioner] | None = None
    partitioner_ignore_keys: bool = False
    request_timeout_ms: int = 30_000
    retries: int = MAX_INT32
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    transaction_timeout_ms: int = 60_000
    transactional_id: str | None = None

    def __post_init__(self) -> None:
        for name, (least, greatest) in _LIMITS.items():
            checked_int(name, getattr(self, name), least=least, greatest=greatest)
        self._check_types()
        if str(self.acks) not in _ACKS or isinstance(self.acks, bool):
            raise ValueError(f"acks must be one of {', '.join(_ACKS)}, got {self.acks!r}")
        self._check_plugins()
        names = [codec.label for codec in CompressionType]
        if self.compression_type not in names:
            raise ValueError(f"compression_type must be one of {', '.join(names)}, got {self.compression_type!r}")
        if self.compression_level is not None:
            level_of(CompressionType.for_name(self.compression_type), self.compression_level)
        for name in ("key_serializer", "value_serializer"):
            try:
                given = serializer_of(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            if given is not None and not callable(given):
                raise ValueError(f"{name} must be callable or a name, got {given!r}")
        if self.transactional_id == "":
            raise ValueError("transactional_id must not be empty")
        self._check_timeouts()
        self._check_idempotence()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ProducerConfig:
        """Create one from keyword arguments.

        Raises: TypeError for an unknown setting, with the nearest name; ValueError, TypeError as above.
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise unknown_setting("a producer", name, known, advice=_ADVICE, where="kstore.ProducerConfig")
        return cls(**settings)

    @property
    def ack(self) -> SinkAck:
        """The ack that `acks` means: "buffered", "written" or "flushed"."""
        return _ACKS[str(self.acks)]

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in compression_type, None for its default."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    @property
    def is_idempotent(self) -> bool:
        """Whether batches have a producer id and sequence numbers."""
        return self.enable_idempotence is not False and self._idempotence_violation() is None

    def _check_types(self) -> None:
        for name in _FLAGS:
            value = getattr(self, name)
            if not isinstance(value, bool) and not (value is None and name == "enable_idempotence"):
                raise TypeError(f"{name} must be a bool, got {value!r} ({type(value).__name__})")
        for name in _TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str) and not (value is None and name == "transactional_id"):
                raise TypeError(f"{name} must be a str, got {value!r} ({type(value).__name__})")

    def _check_plugins(self) -> None:
        interceptors: Any = self.interceptor_classes
        if isinstance(interceptors, str) or not isinstance(interceptors, Iterable):
            raise TypeError(f"interceptor_classes must be a list of ProducerInterceptors, got {interceptors!r}")
        object.__setattr__(self, "interceptor_classes", tuple(interceptors))
        for interceptor in self.interceptor_classes:
            _check_methods(
                "interceptor_classes", interceptor, "ProducerInterceptor", ("on_send", "on_acknowledgement", "close")
            )
        if self.partitioner_class is not None:
            _check_methods("partitioner_class", self.partitioner_class, "Partitioner", ("partition",))

    def _check_timeouts(self) -> None:
        least = min(self.linger_ms + self.request_timeout_ms, MAX_INT32)
        if self.delivery_timeout_ms >= least:
            return
        if not isinstance(self.delivery_timeout_ms, _Unset):
            raise ValueError(
                f"delivery_timeout_ms must be at least linger_ms + request_timeout_ms = {least}, "
                f"got {self.delivery_timeout_ms}"
            )
        object.__setattr__(self, "delivery_timeout_ms", least)

    def _check_idempotence(self) -> None:
        in_flight = self.max_in_flight_requests_per_connection
        if in_flight > MAX_IN_FLIGHT_WITH_IDEMPOTENCE and self.enable_idempotence is not False:
            raise ValueError(
                f"max_in_flight_requests_per_connection must be at most {MAX_IN_FLIGHT_WITH_IDEMPOTENCE} unless "
                f"enable_idempotence is False, got {in_flight}"
            )
        reason = self._idempotence_violation()
        if self.enable_idempotence and reason is not None:
            raise ValueError(f"enable_idempotence needs {reason}")
        if self.transactional_id is not None and not self.is_idempotent:
            needed = "enable_idempotence" if reason is None else reason
            raise ValueError(f"transactional_id needs {needed}")

    def _idempotence_violation(self) -> str | None:
        """Return the requirement of idempotence that the settings violate, None if there is none."""
        if self.retries == 0:
            return "retries above 0, got 0"
        if self.ack == "buffered":
            return f'acks "written" or "flushed", got {self.acks!r}'
        return None


def _check_methods(setting: str, given: object, expected: str, methods: tuple[str, ...]) -> None:
    missing = [method for method in methods if not callable(getattr(given, method, None))]
    if missing:
        raise TypeError(
            f"{setting}: expected a {expected} or a class of one, found {given!r} without {', '.join(missing)}()"
        )
