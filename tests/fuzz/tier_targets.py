"""The invariant of tiered storage: whatever became of one object, a log is read or a typed error says why not, and each
record that is read is one that was uploaded, in its place."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from kstore import KStoreError, Log, open_log
from kstore.log.files.names import find_partitions
from kstore.tier.opening import open_tier
from kstore.tier.verify import verify_tier
from tests.fuzz.agreement import agree
from tests.fuzz.message_mutator import MessageMutator
from tests.making.batches import batches, write_root
from tests.making.tiers import FINISHED, STARTED, Tier, Uploaded, key, write_events

SEGMENTS = [batches(start, 4, records_per_batch=2, value_bytes=40) for start in range(0, 32, 8)]
UPLOADED = 3
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"is_compressed": True},
    {"is_compressed": True, "key": True},
    {"layout": "aiven-2023", "is_compressed": True, "key": True},
    {"layout": "local"},
)
Records = dict[int, bytes | None]


class Target:
    """A log whose first segments are in a tier, with events of the metadata topic or without."""

    def __init__(self, form: dict[str, Any], *, has_events: bool) -> None:
        memory = Path("/dev/shm")
        self._directory = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        atexit.register(self._directory.cleanup)
        path = Path(self._directory.name)
        options = {**form, "key": key()} if form.get("key") else form
        self.tier = Tier(path=path / "tier", **options)
        self.keys = {"key1": key().write(path)}
        self.made: list[Uploaded] = [self.tier.upload(segment) for segment in SEGMENTS[:UPLOADED]]
        self.root = path / "root"
        write_root(self.root, {"t-0": SEGMENTS[UPLOADED:]}, log_start_offsets={"t-0": 0})
        events = [self.tier.event(made, state) for made in self.made for state in (STARTED, FINISHED)]
        self.events = write_events(self.root, events) if has_events else None
        self.expected = self.read()
        agree("tier", b"", found=sorted(self.expected), expected=list(range(8 * len(SEGMENTS))))

    def files(self) -> list[Path]:
        """Everything that a case may damage."""
        found = sorted(path for made in self.made for path in self.tier.directory.glob(f"*{made.segment_id}*"))
        return found + ([] if self.events is None else sorted(self.events.glob("*.log")))

    def read(self, **options: Any) -> Records:
        with open_log(self.root / "t-0", tier=self.tier.path, tier_keys=self.keys) as log:
            return records_of(log, **options)

    def verify(self) -> None:
        env = open_tier([self.root], self.tier.path, keys=self.keys).env
        for partition in find_partitions(self.root, env):
            if partition.topic_partition.topic == "t":
                verify_tier(partition)


def records_of(log: Log, **options: Any) -> Records:
    return {record.offset: record.value for record in log.read(**options)}


@cache
def target_of(form: int, *, has_events: bool) -> Target:
    return Target(FORMS[form], has_events=has_events)


def tier_case(mutator: MessageMutator) -> None:
    """Damage one object, or remove it, and read and verify the log."""
    random = mutator.random
    target = target_of(random.randrange(len(FORMS)), has_events=random.random() < 0.5)
    path = random.choice(target.files())
    content = path.read_bytes()
    damaged = mutator.raw(content)
    try:
        if random.random() < 0.1:
            path.unlink()
        else:
            path.write_bytes(damaged)
        for options in ({}, {"on_error": "skip"}, {"isolation": "read_committed"}):
            with suppress(KStoreError):
                found = target.read(**options)
                known = {offset: target.expected.get(offset, b"none") for offset in found}
                agree(f"tier, {path.name}, {options}", damaged, found=found, expected=known)
        with suppress(KStoreError):
            target.verify()
    finally:
        path.write_bytes(content)


TIER_TARGETS: dict[str, Callable[[MessageMutator], None]] = {"tier": tier_case}
