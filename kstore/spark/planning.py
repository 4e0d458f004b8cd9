"""From options to the tasks of a read, on the driver: which files, which offsets, how many tasks. Layer: spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kstore.log import open_log
from kstore.log.directory import PartitionDirectory, find_partitions
from kstore.log.log import Log
from kstore.log.plan import ScanRange
from kstore.spark.offsets import OffsetRange, resolve_offset_ranges
from kstore.spark.options import ReadOptions
from kstore.spark.pushdown import Constraint
from kstore.spark.splitting import split_ranges
from kstore.spark.topics import select_partitions
