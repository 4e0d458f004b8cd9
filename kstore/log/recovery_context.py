"""RecoveryContext: the partition that is recovered, as every step of recovery asks for it. Layer 5."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kstore.config import MAX_INT64, LogConfig
from kstore.log.directory import PartitionDirectory
from kstore.log.env import Env, OpenFiles, join_path
from kstore.log.filenames import CLEANER_CHECKPOINT
from kstore.log.partition_files import SegmentFiles
from kstore.log.producer_state import ProducerStateManager
from kstore.log.root_checkpoints import read_checkpoint
from kstore.log.segment_records import SegmentRecords
from kstore.log.segment_walk import SegmentWalk, walk_segment
from kstore.log.verify_segment import SegmentCheck
from kstore.types import TopicPartition


@dataclass(frozen=True)
class RecoveryContext:
    """Where the partition lies, its settings, and the system that its files are read and changed by.

    log_start_offset: of the root's checkpoint, 0 where that names none.
    """

    directory: PartitionDirectory
    config: LogConfig
    env: Env
    log_start_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return self.directory.topic_partition

    @property
    def path(self) -> str:
        return self.directory.path

    def path_of(self, name: str) -> str:
        """Return the path of a name in the partition's directory."""
        return join_path(self.path, name)

    def walk(
        self, name: str, *, base_offset: int, next_base_offset: int | None, start_position: int = 0
    ) -> SegmentWalk:
        """Walk the .log of that name; see walk_segment."""
        return walk_segment(
            self.path_of(name),
            base_offset=base_offset,
            next_base_offset=next_base_offset,
            config=self.config,
            env=self.env,
            start_position=start_position,
        )

    def producer_state(self) -> ProducerStateManager:
        """Return the producers of the partition, none of them loaded."""
        return ProducerStateManager(self.topic_partition, self.path, config=self.config, env=self.env)

    @contextmanager
    def check_of(self, files: SegmentFiles, *, next_base_offset: int | None) -> Iterator[SegmentCheck]:
        """Give the walk over a segment that goes on behind damage, which looks at no record."""
        with OpenFiles(self.env) as open_files:
            records = SegmentRecords(
                open_files,
                path=self.path_of(files.log_name),
                base_offset=files.base_offset,
                next_base_offset=next_base_offset,
                size_in_bytes=files.size_in_bytes,
                config=self.config,
            )
            yield SegmentCheck(records, topic_partition=self.topic_partition, config=self.config, is_deep=False)

    def cleaned_below(self) -> int:
        """Return the offset up to which a cleaner has been over the log, or may have been by the settings."""
        if self.config.is_compacted:
            return MAX_INT64
        offsets = read_checkpoint(self.directory.root, CLEANER_CHECKPOINT, self.env)
        return offsets.get(self.topic_partition, 0)
