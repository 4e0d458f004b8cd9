"""Plan, Part and PartResult: what one run of an export has to do, in pieces that do not depend on each other."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kstore.archive.manifest import (
    ExportedFile,
    ExportedPartition,
    OpenTransaction,
    check_exported,
    check_file,
    check_partition,
    corruption_of,
)
from kstore.config import MAX_INT64
from kstore.log.damage import SkippedRange
from kstore.log.files.json_state import (
    CHECKSUM,
    FieldError,
    check_checksum,
    check_number,
    check_relative_path,
    json_object,
    value_as,
    with_checksum,
)
from kstore.log.plan import ScanRange
from kstore.types import MAX_OFFSET, TopicPartition


class Part(NamedTuple):
    """One task: the records of [start_offset, end_offset) of a partition, or files of the target that are joined.

    size_in_bytes: to read. source_base_offset: of a segment to copy, that of its source, else -1. base_offset: that the
    copy gets, -1 for that of its first batch. inputs: the paths of files to join; empty for a part of the source.
    markers: of transactions that began before the part and end in it, of format "kstore".
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
    markers: tuple[OpenTransaction, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_empty_segment(self) -> bool:
        """Whether it makes a segment without records."""
        return self.start_offset == self.end_offset and not self.inputs


class Waiting(NamedTuple):
    """Offsets [start_offset, end_offset) of a partition that a run leaves to a later one: a transaction is open."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


class Plan(NamedTuple):
    """What a run does. partitions: as they are after the run, without record counts; parts: by number; waiting: offsets
    left to a later run; earlier_run_id: of the manifest that the run continues, empty for the first run.
    """

    run_id: str
    source: str
    options: dict[str, Any]
    partitions: tuple[ExportedPartition, ...]
    parts: tuple[Part, ...]
    waiting: tuple[Waiting, ...] = ()
    earlier_run_id: str = ""

    def encoded(self) -> bytes:
        """Return the plan as JSON, with a checksum."""
        fields = self._asdict()
        fields["partitions"] = [partition._asdict() for partition in self.partitions]
        return json.dumps(with_checksum(fields)).encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> Plan:
        """Return the plan of encoded().  Raises: CorruptManifestError."""
        with corruption_of(path):
            plan: Plan = state_of(cls, content)
            for at, partition in enumerate(plan.partitions):
                check_exported(f"partitions[{at}]", partition)
            known = {partition.topic_partition for partition in plan.partitions}
            for at, part in enumerate(plan.parts):
                _check_part(f"parts[{at}]", part, number=at)
                if not part.inputs and part.topic_partition not in known:
                    raise FieldError(f"parts[{at}]", "a part of a partition that is listed", str(part.topic_partition))
            for at, left in enumerate(plan.waiting):
                check_partition(f"waiting[{at}]", left.topic, left.partition)
            return plan

    def check_earlier(self, run_id: str, *, path: str) -> None:
        """Raise CorruptManifestError unless the plan continues the manifest of this run, "" for none.

        Args: path: of the plan's directory, for the error.
        """
        with corruption_of(path):
            if run_id != self.earlier_run_id:
                raise FieldError("plan.earlier_run_id", f"{run_id!r}, as the manifest says", repr(self.earlier_run_id))


def state_of(kind: Any, content: bytes) -> Any:
    """Return the value in a file of an unfinished run, which has a checksum.  Raises: ValueError."""
    fields = json_object(content)
    if not check_checksum(fields):
        raise FieldError(CHECKSUM, "a checksum", "nothing")
    return value_as(kind, {name: value for name, value in fields.items() if name != CHECKSUM}, field="")


def _check_part(field: str, part: Part, *, number: int) -> None:
    check_number(f"{field}.number", part.number, least=number, most=number)
    check_partition(field, part.topic, part.partition)
    check_number(f"{field}.start_offset", part.start_offset, least=0, most=MAX_OFFSET)
    check_number(f"{field}.end_offset", part.end_offset, least=part.start_offset, most=MAX_OFFSET)
    check_number(f"{field}.size_in_bytes", part.size_in_bytes, least=0, most=MAX_INT64)
    check_number(f"{field}.source_base_offset", part.source_base_offset, least=-1, most=MAX_OFFSET)
    check_number(f"{field}.base_offset", part.base_offset, least=-1, most=MAX_OFFSET)
    for at, path in enumerate(part.inputs):
        check_relative_path(f"{field}.inputs[{at}]", path, most_components=3)


class Work(NamedTuple):
    """A part with what its task needs. Picklable.

    ranges: of the source; directory: the partition's in the source; files: those to join. missing: [first, end) offsets
    of the part that the source has lost. exported: the part's partition in the plan; None for a join.
    """

    part: Part
    directory: str = ""
    ranges: tuple[ScanRange, ...] = ()
    files: tuple[ExportedFile, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()
    exported: ExportedPartition | None = None

    @property
    def cut_offset(self) -> int:
        """The offset below which records must not be copied, 0 for no limit. It is needed for a part that starts inside
        a batch above the log start offset of the target, which hides nothing there.
        """
        start = 0 if self.exported is None else self.exported.start_offset
        return self.part.start_offset if self.part.start_offset > start else 0


class StagedFile(NamedTuple):
    """A finished file that waits for the commit. staged: its name in the staging directory; companions: (path below the
    target, staged name) of the files that go with it.
    """

    file: ExportedFile
    staged: str
    companions: tuple[tuple[str, str], ...] = ()


class PartResult(NamedTuple):
    """The result of a task. epochs: (leader epoch, first offset) of each change in the copied batches; next_offset: the
    offset after the last copied batch; has_producers, has_transactions: whether copied batches have a producer id, or
    are transactional; lost_markers: planned markers that the source no longer had.
    """

    part: int
    files: tuple[StagedFile, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()
    damage: tuple[dict[str, Any], ...] = ()
    next_offset: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    has_producers: bool = False
    has_transactions: bool = False
    lost_markers: tuple[OpenTransaction, ...] = ()

    def encoded(self) -> bytes:
        """Return the result as JSON, with a checksum."""
        fields = self._asdict()
        fields["files"] = [{**staged._asdict(), "file": staged.file._asdict()} for staged in self.files]
        return json.dumps(with_checksum(fields)).encode()

    @classmethod
    def decoded(cls, content: bytes, *, path: str) -> PartResult:
        """Return the result of encoded().  Raises: CorruptManifestError."""
        with corruption_of(path):
            result: PartResult = state_of(cls, content)
            check_number("part", result.part, least=0, most=MAX_INT64)
            check_number("next_offset", result.next_offset, least=-1, most=MAX_OFFSET)
            for at, file in enumerate(result.files):
                check_file(f"files[{at}].file", file.file)
                check_relative_path(f"files[{at}].staged", file.staged, most_components=1)
                for number, (path_below, staged) in enumerate(file.companions):
                    field = f"files[{at}].companions[{number}]"
                    check_relative_path(f"{field}[0]", path_below, most_components=3)
                    check_relative_path(f"{field}[1]", staged, most_components=1)
            return result


def described(skipped: SkippedRange) -> dict[str, Any]:
    """Return what was left out as a JSON object."""
    return {name: value for name, value in skipped._asdict().items() if name != "topic_partition"}
