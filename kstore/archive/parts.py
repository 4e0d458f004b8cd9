"""Plan, Part and PartResult: what one run of an export has to do, in pieces that do not depend on each other."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kstore.archive.manifest import ExportedFile, ExportedPartition, json_object, malformed, partition_of
from kstore.log.damage import SkippedRange
from kstore.log.plan import ScanRange
from kstore.types import TopicPartition


class Part(NamedTuple):
    """One task: the records of [start_offset, end_offset) of a partition, or files of the target that are joined.

    size_in_bytes: to read. source_base_offset: of a segment to copy, that of its source, else -1. base_offset: that the
    copy gets, -1 if its first batch tells. inputs: the paths of files to join; empty for a part of the source.
    """

    number: int
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_in_bytes: int = 0
    source_base_offset: int = -1
    base_offset: int = -1
    inputs: tuple[str, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_empty_segment(self) -> bool:
        """Whether it makes a segment without records."""
        return self.start_offset == self.end_offset and not self.inputs


class Plan(NamedTuple):
    """What a run does. partitions: as they will be, without counts; parts: by number."""

    run_id: str
    source: str
    options: dict[str, Any]
    partitions: tuple[ExportedPartition, ...]
    parts: tuple[Part, ...]

    def encoded(self) -> bytes:
        """Return the plan as JSON."""
        fields = self._asdict()
        fields["partitions"] = [one._asdict() for one in self.partitions]
        return json.dumps(fields).encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> Plan:
        """Return the plan of encoded().  Raises: CorruptManifestError."""
        fields = json_object(content, path=path)
        try:
            fields["partitions"] = tuple(map(partition_of, fields["partitions"]))
            parts = (Part(*one) for one in fields["parts"])
            fields["parts"] = tuple(one._replace(inputs=tuple(one.inputs)) for one in parts)
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise malformed(path, error) from error


class Work(NamedTuple):
    """A part with what its task needs. Picklable.

    ranges: of the source; directory: the partition's in the source; files: those to join. missing: [first, end) offsets
    of the part that the source has lost.
    """

    part: Part
    directory: str = ""
    ranges: tuple[ScanRange, ...] = ()
    files: tuple[ExportedFile, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()


class StagedFile(NamedTuple):
    """A finished file that waits for the commit. staged: its name in the staging directory; companions: (path below the
    target, staged name) of the files that go with it.
    """

    file: ExportedFile
    staged: str
    companions: tuple[tuple[str, str], ...] = ()


class PartResult(NamedTuple):
    """What a task did. epochs: (leader epoch, first offset) where it changes in copied batches; next_offset: the one
    after the last copied batch; has_producers, has_transactions: whether copied batches have a producer id, or are
    transactional.
    """

    part: int
    files: tuple[StagedFile, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()
    damage: tuple[dict[str, Any], ...] = ()
    next_offset: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    has_producers: bool = False
    has_transactions: bool = False

    def encoded(self) -> bytes:
        """Return the result as JSON."""
        fields = self._asdict()
        fields["files"] = [{**one._asdict(), "file": one.file._asdict()} for one in self.files]
        return json.dumps(fields).encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> PartResult:
        """Return the result of encoded().  Raises: CorruptManifestError."""
        fields = json_object(content, path=path)
        try:
            fields["files"] = tuple(
                StagedFile(ExportedFile(**one["file"]), one["staged"], tuple(map(_pair, one["companions"])))
                for one in fields["files"]
            )
            for name in ("missing", "epochs"):
                fields[name] = tuple(map(_pair, fields[name]))
            return cls(**{**fields, "damage": tuple(fields["damage"])})
        except (KeyError, TypeError, ValueError) as error:
            raise malformed(path, error) from error


def described(skipped: SkippedRange) -> dict[str, Any]:
    """Return what was left out as a JSON object."""
    return {name: value for name, value in skipped._asdict().items() if name != "topic_partition"}


def _pair(values: list[Any]) -> tuple[Any, Any]:
    one, other = values
    return one, other
