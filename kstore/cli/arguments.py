"""Parsing of command-line arguments into offsets, times and partitions."""

from __future__ import annotations

import re
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING

from kstore.naming import did_you_mean
from kstore.types import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.env import Env
    from kstore.log.damage import SuspectedLoss
    from kstore.log.files.names import PartitionDirectory
    from kstore.types import TopicPartition

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MILLISECOND = timedelta(milliseconds=1)
_SHOWN_CHARACTERS = 60
_SHOWN_NUMBERS = 10
_PATTERN_LETTERS = frozenset("*?[")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_TIME_AGO = re.compile(r"-([0-9]{1,15})(ms|[smhdw])")
_TIME_WITH_UNIT = re.compile(r"([0-9]{1,18})(ms|s)")
# Numbers that are a time from 2001 to 2099 in seconds, and in January or February 1970 in ms.
_LIKELY_SECONDS = range(1_000_000_000, 4_100_000_001)
_MILLION, _BILLION = 10**6, 10**9
# Dates and times without the signs between, by how many digits they have.
_DIGITS_OF_TIMES = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_YEARS = range(1970, 2100)


class WrongUseError(Exception):
    """A usage error (exit status 2). Its message is shown to the user."""


@dataclass(frozen=True, kw_only=True)
class PartitionSelection:
    """The partitions to work on: those of DIR, narrowed by topic names and partition numbers (empty: all).

    topics: names, or shell patterns with `*`, `?` or `[`. others: more DIRs, as log.dirs has several. tier: where their
    older segments are, None for nowhere; tier_keys: (key id, path of a private key) each; tier_epoch: as of
    kstore.open_log; max_decrypted_bytes: as of LogConfig, None for its default.
    """

    directory: str
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    others: tuple[str, ...] = ()
    tier: str | None = None
    tier_keys: tuple[tuple[str, str], ...] = ()
    tier_epoch: int | None = None
    max_decrypted_bytes: int | None = None

    @property
    def directories(self) -> tuple[str, ...]:
        """All DIRs."""
        return self.directory, *self.others

    def find(self) -> list[PartitionDirectory]:
        """Return the selected partition directories, sorted by topic and partition.

        Raises: LogNotFoundError if DIR holds no log, WrongUseError if no partition in it matches; StorageError if two
            DIRs hold the same partition.
        """
        from kstore.env import shown_path
        from kstore.log.files.names import find_partitions

        partitions = find_partitions(self.directories, self.env, is_wanted=self.selects)
        selected = [partition for partition in partitions if self.selects(partition.topic_partition)]
        if not selected:
            places = [shown_path(directory) for directory in self.directories]
            raise WrongUseError(
                f"found no partition {self._wanted()}among the {len(partitions)} in {' and '.join(places)}; "
                f"to list them: kstore ls {' '.join(map(shell_word, places))}"
                + did_you_mean(self.topics, (partition.topic_partition.topic for partition in partitions))
                + self._numbers_there([partition.topic_partition for partition in partitions])
            )
        return sorted(selected, key=lambda partition: partition.topic_partition)

    @property
    def env(self) -> Env | None:
        """The Env that shows DIR with its tier, as it is now; None without a tier.

        Raises: WrongUseError for another option of a tier without one.
        """
        if self.tier is None:
            others = {
                "--tier-key": self.tier_keys or None,
                "--tier-epoch": self.tier_epoch,
                "--max-decrypted-bytes": self.max_decrypted_bytes,
            }
            for option, value in others.items():
                if value is not None:
                    raise WrongUseError(f"{option} is of no use without --tier, where the segments are")
            return None
        from kstore.config import LogConfig
        from kstore.store.opening import tiered_env

        limit = self.max_decrypted_bytes
        config = None if limit is None else LogConfig(max_decrypted_bytes=limit)
        return tiered_env(self.directories, self.tier, keys=dict(self.tier_keys), epoch=self.tier_epoch, config=config)

    def narrowed_to(self, directories: list[str]) -> PartitionSelection:
        """Return the selection of some of the DIRs, at least one."""
        return replace(self, directory=directories[0], others=tuple(directories[1:]))

    def losses_of_roots(self, partitions: Iterable[PartitionDirectory]) -> list[SuspectedLoss]:
        """Return the losses of selected partitions without a directory, if DIR is the root of `partitions`."""
        from kstore.log.recovery.evidence import losses_of_root

        directories = list(partitions)
        roots = {partition.root: partition.env for partition in directories if not self.is_directory_of(partition)}
        # A partition that was deleted since it was listed is reported where it is opened.
        listed = {partition.topic_partition for partition in directories}

        def is_wanted(partition: TopicPartition) -> bool:
            return self.selects(partition) and partition not in listed

        return [loss for root in sorted(roots) for loss in losses_of_root(root, roots[root], is_wanted=is_wanted)]

    def is_directory_of(self, partition: PartitionDirectory) -> bool:
        """Whether a DIR is the directory of a partition."""
        return partition.path in self._paths

    @cached_property
    def _paths(self) -> frozenset[str]:
        from kstore.env import locate

        return frozenset(locate(directory, self.env).path for directory in self.directories)

    def directory_of(self, path: str) -> str:
        """Return the DIR that a file is in, the first one if none of them."""
        from kstore.env import join_path, locate

        holders = (each for each in self.directories if path.startswith(join_path(locate(each).path, "")))
        return next(holders, self.directory)

    def names(self, partition: PartitionDirectory) -> bool:
        """Whether a partition was selected by the name of its topic, or because DIR is its directory."""
        return partition.topic_partition.topic in self.topics or self.is_directory_of(partition)

    def selects_topic(self, topic: str) -> bool:
        """Whether a topic is selected by its name or by a pattern."""
        return not self.topics or any(
            fnmatchcase(topic, wanted) if _PATTERN_LETTERS.intersection(wanted) else topic == wanted
            for wanted in self.topics
        )

    def selects(self, topic_partition: TopicPartition) -> bool:
        """Whether --topic and --partition select a partition."""
        topic, number = topic_partition
        return (not self.partitions or number in self.partitions) and self.selects_topic(topic)

    def _numbers_there(self, known: list[TopicPartition]) -> str:
        """Return which partitions the topics have of which others were asked for, or an empty text."""
        if not self.partitions:
            return ""
        numbers = sorted({number for topic, number in known if not self.topics or topic in self.topics})
        shown = ", ".join(map(str, numbers[:_SHOWN_NUMBERS])) + (", ..." if len(numbers) > _SHOWN_NUMBERS else "")
        return f"; there {'is' if len(numbers) == 1 else 'are'} {shown}" if numbers else ""

    def _wanted(self) -> str:
        topics = f"of topic {' or '.join(self.topics)} " if self.topics else ""
        numbers = f"numbered {' or '.join(map(str, self.partitions))} " if self.partitions else ""
        return topics + numbers


def parse_tier_key(text: str) -> tuple[str, str]:
    """Return the key id and the path of ID=FILE.  Raises: WrongUseError."""
    key_id, separator, path = text.partition("=")
    if not key_id or not separator or not path:
        raise WrongUseError(
            f"--tier-key must be ID=FILE, the id of a key and its private key in PEM, got {_shown(text)}"
        )
    return key_id, path


def parse_offset(text: str, *, option: str, counts_from_end: bool = False) -> int:
    """Return the offset that `text` gives in digits or as `earliest` (0) or `latest` (the largest int64).

    Args: counts_from_end: whether a negative number is allowed, and returned.
    Raises: WrongUseError that names the option.
    """
    if text == "earliest":
        return 0
    if text == "latest":
        return MAX_OFFSET
    offset = _int64(text)
    if offset is not None and (offset >= 0 or counts_from_end):
        return offset
    counted = ", a negative number for so many offsets before the end" if counts_from_end else ""
    raise WrongUseError(
        f"{option} must be earliest, latest{counted} or an offset from 0 to {MAX_OFFSET}, got {_shown(text)}"
    )


def parse_timestamp_ms(text: str, *, option: str, now_ms: int | None = None) -> int:
    """Return ms since the epoch from a time as it is typed, rounded up.

    That is a number of ms; a number with the unit `s` or `ms`; how long ago (`-90m`, of ms, s, m, h, d, w); or an
    ISO-8601 time or date, in UTC if it has no zone.
    Args: now_ms: the time by which `ago` is meant, by default the clock's.
    Raises: WrongUseError that names the option, also for a number that is no time of this century in ms, and one as
        seconds, microseconds, nanoseconds, or the digits of a date.
    """
    timestamp_ms = _int64(text)
    if timestamp_ms is not None and timestamp_ms in _LIKELY_SECONDS:
        raise WrongUseError(
            f"{option} {text} may be seconds or ms since the epoch: write {text}s for {_utc(int(text) * 1000)}, "
            f"or {text}ms for {_utc(int(text))}"
        )
    if timestamp_ms is not None:
        other = _other_reading(text, timestamp_ms)
        if other is not None:
            raise WrongUseError(f"{option} {text} may be {other}; or write {text}ms for ms since the epoch")
        return timestamp_ms
    ago, number = _TIME_AGO.fullmatch(text), _TIME_WITH_UNIT.fullmatch(text)
    if ago is not None:
        from kstore.env.process import SYSTEM_CLOCK

        now_ms = SYSTEM_CLOCK.wall_clock_ms() if now_ms is None else now_ms
        return _in_int64(now_ms - int(ago[1]) * _UNITS_MS[ago[2]], text, option)
    if number is not None:
        return _in_int64(int(number[1]) * _UNITS_MS[number[2]], text, option)
    iso = text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text
    try:
        moment = datetime.fromisoformat(iso)
    except ValueError:
        raise WrongUseError(
            f"{option} must be ms since the epoch, an ISO-8601 time such as 2024-05-01T12:00:00Z, or how long ago such "
            f"as -1h or -2d, got {_shown(text)}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return -((EPOCH - moment) // MILLISECOND)


def _other_reading(text: str, number: int) -> str | None:
    """Return how a time of this century would be written that the digits may be meant as, None if they are none."""
    written = _DIGITS_OF_TIMES.get(len(text))
    if written is not None:
        with suppress(ValueError):
            moment = datetime.strptime(text, written)
            if moment.year in _YEARS:
                return f"a date: write {moment.date() if len(text) == 8 else moment.isoformat()} for it"
    for unit, name in ((_MILLION, "microseconds"), (_BILLION, "nanoseconds")):
        if number // unit in _LIKELY_SECONDS:
            return f"{name}: write {number * 1000 // unit} for {_utc(number * 1000 // unit)}"
    return None


def _in_int64(timestamp_ms: int, text: str, option: str) -> int:
    if not -MAX_OFFSET - 1 <= timestamp_ms <= MAX_OFFSET:
        raise WrongUseError(f"{option} must be a time in 64 bits of ms, got {_shown(text)}")
    return timestamp_ms


def _utc(timestamp_ms: int) -> str:
    return (EPOCH + timestamp_ms * MILLISECOND).isoformat(timespec="seconds").replace("+00:00", "Z")


def parse_bytes(text: str, *, option: str) -> bytes:
    """Return the bytes that `text` gives: those after `hex:` or `base64:`, else its UTF-8, after `text:` if need be.

    Raises: WrongUseError that names the option.
    """
    kind, colon, rest = text.partition(":")
    try:
        if colon and kind == "hex":
            return bytes.fromhex(rest)
        if colon and kind == "base64":
            return b64decode(rest, validate=True)
    except ValueError as error:
        raise WrongUseError(f"{option} must be {kind} after {kind}:, got {_shown(rest)}: {error}") from error
    return (rest if colon and kind == "text" else text).encode("utf-8", "surrogateescape")


def parse_header(text: str, *, option: str) -> tuple[str, bytes | None]:
    """Return the key and value of a header `K=V`, where V is as in parse_bytes; `K` alone has None for any value.

    Raises: WrongUseError that names the option.
    """
    key, equals, value = text.partition("=")
    return key, parse_bytes(value, option=option) if equals else None


def _int64(text: str) -> int | None:
    """Return the value of decimal digits with an optional minus sign, or None for other text and beyond int64."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _SHOWN_CHARACTERS:
        return None
    number = int(text)
    return number if -MAX_OFFSET - 1 <= number <= MAX_OFFSET else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def shell_word(text: str) -> str:
    """Return a text as one word of a command line that can be printed.

    Other characters become octal escapes in $'...', which bash, zsh, ksh and POSIX.1-2024 shells know.
    """
    if text.isprintable():
        return quote(text)
    characters = ("\\" + char if char in "\\'" else char if char.isprintable() else _octal(char) for char in text)
    return f"$'{''.join(characters)}'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
