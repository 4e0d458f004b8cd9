"""The invariant of tiered storage: whatever became of the objects of a segment, or of the events of the metadata topic,
a log is read or a typed error says why not, and each record that is read was uploaded, in its place and order.
"""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from kstore import KStoreError, Record, open_log
from kstore.log.files.names import find_partitions
from kstore.tier.opening import open_tier
from kstore.tier.verify import verify_tier
from tests.fuzz.agreement import COUNTS, agree
from tests.fuzz.message_mutator import MessageMutator
from tests.fuzz.mutator import INTERESTING_64
from tests.making.batches import batches, write_root
from tests.making.tiers import FINISHED, STARTED, Tier, Uploaded, key, side_files, write_events

SEGMENTS = [batches(start, 4, records_per_batch=2, value_bytes=40) for start in range(0, 32, 8)]
UPLOADED = 3
EPOCHS = ((0, 0),)
TAG_BYTES, IV_BYTES = 16, 12
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"is_compressed": True},
    {"is_compressed": True, "key": True},
    {"layout": "aiven-2023", "is_compressed": True, "key": True},
    {"layout": "local"},
)
WAYS: tuple[dict[str, Any], ...] = ({}, {"on_error": "skip"}, {"isolation": "read_committed"})


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
        self.events = [self.tier.event(made, state) for made in self.made for state in (STARTED, FINISHED)]
        self.has_events = has_events
        if has_events:
            write_events(self.root, self.events)
        self.expected = {record.offset: record for record in self.read()}
        agree("tier", b"", found=sorted(self.expected), expected=list(range(8 * len(SEGMENTS))))

    def objects(self, made: Uploaded) -> list[Path]:
        return sorted(self.tier.directory.glob(f"*{made.segment_id}*"))

    def read(self, **options: Any) -> list[Record]:
        with open_log(self.root / "t-0", tier=self.tier.path, tier_keys=self.keys) as log:
            return list(log.read(**options))

    def verify(self) -> None:
        env = open_tier([self.root], self.tier.path, keys=self.keys).env
        for partition in find_partitions(self.root, env):
            if partition.topic_partition.topic == "t":
                verify_tier(partition)


@cache
def target_of(form: int, *, has_events: bool) -> Target:
    return Target(FORMS[form], has_events=has_events)


class Damage:
    """Damages one segment of a target, or the events; undo() makes all as it was."""

    def __init__(self, target: Target, mutator: MessageMutator) -> None:
        self.target = target
        self.mutator = mutator
        self.random: Random = mutator.random
        number = self.random.randrange(UPLOADED)
        self.made = target.made[number]
        self.segment = SEGMENTS[number]
        self._before = {path: path.read_bytes() for path in target.objects(self.made)}

    def undo(self) -> None:
        for path in self.target.objects(self.made):
            if path not in self._before:
                path.unlink()
        for path, content in self._before.items():
            path.write_bytes(content)
        if self.target.has_events:
            write_events(self.target.root, self.target.events)

    def manifest(self) -> None:
        """Its bytes, or a field of its JSON."""
        path = self.made.path(".rsm-manifest")
        content = path.read_bytes()
        if self.random.random() < 0.4:
            path.write_bytes(self.mutator.raw(content))
            return
        fields = json.loads(content)
        for _ in range(self.random.choice([1, 1, 1, 2])):
            damage_field(fields, self.random)
        path.write_text(json.dumps(fields))

    def chunk(self) -> None:
        """The bytes of the log's object: chunks are cut, moved and overwritten."""
        path = self.made.path(".log")
        content = path.read_bytes()
        if self.random.random() < 0.2:
            size = self.random.randrange(1, max(2, len(content) // 2))
            content = content[size : 2 * size] + content[:size] + content[2 * size :]
            path.write_bytes(content)
        else:
            path.write_bytes(self.mutator.raw(content))

    def tag(self) -> None:
        """The tag or IV of an index or of the last chunk."""
        path = self._any(but=(".rsm-manifest",))
        content = bytearray(path.read_bytes())
        places = [*range(IV_BYTES), *range(-TAG_BYTES, 0)]
        if len(content) >= len(places):
            content[self.random.choice(places)] ^= 1 << self.random.randrange(8)
        path.write_bytes(content)

    def content(self) -> None:
        """The log itself, before it was compressed and encrypted: all that is around it is right."""
        data = b"".join(self.segment)
        damaged = self.mutator.raw(data)
        if self.random.random() < 0.6:
            damaged = (damaged + data[len(damaged) :])[: len(data)]
        self.target.tier.write(self.made, damaged, self._sides())

    def index(self) -> None:
        """Side files: as they are stored, or before they were encrypted."""
        if self.random.random() < 0.5:
            path = self._any(but=(".rsm-manifest", ".log"))
            path.write_bytes(self.mutator.raw(path.read_bytes()))
            return
        sides = self._sides()
        for name in self.random.sample(sorted(sides), 2):
            sides[name] = self.mutator.raw(sides[name] or b"")
        self.target.tier.write(self.made, b"".join(self.segment), sides)

    def half_an_upload(self) -> None:
        """Some of the objects are not there, and one may end early."""
        paths = self.target.objects(self.made)
        for path in self.random.sample(paths, self.random.randint(1, len(paths))):
            path.unlink()
        for path in self.target.objects(self.made):
            if self.random.random() < 0.3:
                content = path.read_bytes()
                path.write_bytes(content[: self.random.randrange(len(content) + 1)])

    def metadata_record(self) -> None:
        """Events in batches that are sound: their bytes, their order, their number."""
        events = list(self.target.events)
        at = self.random.randrange(len(events))
        kind = self.random.randrange(5)
        if kind == 0:
            del events[at]
        elif kind == 1:
            events.insert(self.random.randrange(len(events)), events[at])
        elif kind == 2:
            self.random.shuffle(events)
        else:
            # The frame and the ids come first; what follows them says where the segment is.
            start = self.random.choice([0, 40])
            events[at] = events[at][:start] + self.mutator.raw(events[at][start:])
        write_events(self.target.root, events)

    def _sides(self) -> dict[str, bytes | None]:
        return side_files(self.segment, EPOCHS, end=self.made.end)

    def _any(self, *, but: tuple[str, ...]) -> Path:
        return self.random.choice([path for path in self.target.objects(self.made) if path.suffix not in but])


KINDS: dict[str, Callable[[Damage], None]] = {
    "manifest": Damage.manifest,
    "chunk": Damage.chunk,
    "tag": Damage.tag,
    "content of a chunk": Damage.content,
    "index": Damage.index,
    "half an upload": Damage.half_an_upload,
    "metadata record": Damage.metadata_record,
}


# In which forms of a tier there is something of a kind.
NEEDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "manifest": lambda form: form.get("layout") != "local",
    "tag": lambda form: "key" in form,
}


def damage_field(fields: dict[str, Any], random: Random) -> None:
    """Give another value to a field of JSON, at any depth, or remove it."""
    inner: Any = fields
    name = random.choice(sorted(inner))
    while isinstance(inner[name], dict) and inner[name] and random.random() < 0.9:
        inner = inner[name]
        name = random.choice(sorted(inner))
    value = inner[name]
    if random.random() < 0.15:
        del inner[name]
    elif isinstance(value, int) and not isinstance(value, bool):
        inner[name] = random.choice([*INTERESTING_64, value + 1, value - 1, value * 2, random.randrange(64)])
    elif isinstance(value, str) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        inner[name] = value[:at] + random.choice("AB:=-0") + value[at + random.randrange(2) :]
    else:
        inner[name] = random.choice([None, True, False, 0, 1.5, "", "1", [], {}, value])


def tier_case(mutator: MessageMutator) -> None:
    """Damage one segment or the events, and read and verify the log."""
    random = mutator.random
    kind = random.choice(sorted(KINDS))
    form, has_events = random.randrange(len(FORMS)), random.random() < 0.5 or kind == "metadata record"
    if kind in NEEDS:
        form = random.choice([number for number, each in enumerate(FORMS) if NEEDS[kind](each)])
    target = target_of(form, has_events=has_events)
    damage = Damage(target, mutator)
    try:
        KINDS[kind](damage)
        for options in WAYS:
            how = f"tier, {kind}"
            try:
                found = target.read(**options)
            except KStoreError as error:
                COUNTS[f"{how}: refused with {type(error).__name__}"] += 1
            else:
                check(found, target.expected, f"{how}, {FORMS[form]}, {options}", is_sealed="key" in FORMS[form])
                COUNTS[f"{how}: {'all' if len(found) == len(target.expected) else 'a part'} read"] += 1
        with suppress(KStoreError):
            target.verify()
    finally:
        damage.undo()


def check(found: Sequence[Record], expected: dict[int, Record], what: str, *, is_sealed: bool) -> None:
    """Each record is the one of its offset, and each comes after the one before.

    Only encryption covers the base offset of a batch, which its CRC does not: without it, a record may have another
    offset than it was uploaded with, and nothing else of it.
    """
    offsets = [record.offset for record in found]
    agree(what, b"", found=offsets, expected=sorted(set(offsets)))
    known = {contents(record) for record in expected.values()}
    wrong = [
        record
        for record in found
        if record != expected.get(record.offset) and (is_sealed or contents(record) not in known)
    ]
    agree(what, b"", found=wrong, expected=[])


def contents(record: Record) -> tuple[object, ...]:
    return record.timestamp_ms, record.key, record.value, record.headers


TIER_TARGETS: dict[str, Callable[[MessageMutator], None]] = {"tier": tier_case}
