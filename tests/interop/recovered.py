"""What `recover` says yes to, Kafka's own classes load as it is, and a broker starts with.

Every recovery case in every mode, and random damages of side files, by UnifiedLog; every case once more below one root
that a broker starts with. Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.files.names import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
)
from kstore.log.recovery.modes import RecoveryMode
from kstore.store.checks import recover
from kstore.store.opening import open_log
from kstore.store.store import open_store
from tests.crash.recovered_side_files import MODES, broker_root, damaged_root, is_yes, recovery_case
from tests.golden.recovery_cases import NEW_SETS, Case, cases
from tests.golden.sets import read_offset_checkpoint
from tests.interop.broker import NODE_ID, Broker, Client
from tests.interop.histories.answers import Answer, Kafka, differences, state_of
from tests.interop.histories.running import quiet
from tests.interop.store import CLUSTER_ID, ISOLATIONS, clean_start, records_of, topic_id
from tests.making.batches import write_offset_checkpoint

DAMAGES = 500
COMPARED = ("log_start_offset", "log_end_offset", "segments", "epochs")
KEPT = (".log", ".index", ".timeindex", ".txnindex", PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT)
# No producer expires, whatever the age of the sets.
KAFKA_SETTINGS = ("producer.id.expiration.ms=2147483647", "transaction.partition.verification.enable=false")
EARLIEST, LATEST = -2, -1
# What is said of the cluster's own log, which a broker loads as after a crash, and of the epoch in which it leads: in a
# new cluster that may be one that the log had before.
OF_THE_CLUSTER = re.compile(r"__cluster_metadata-0|New epoch entry EpochEntry")

Problems = Iterator[str]


def steps(work: Path, *, seed: int = 1, damages: int = DAMAGES) -> Iterator[tuple[str, Problems]]:
    with Kafka.running() as kafka, quiet():
        tried = cases(*NEW_SETS)
        yield (
            f"Kafka's UnifiedLog loads what recover said yes to of {len(tried)} cases",
            cases_loaded(kafka, work, tried),
        )
        what = f"Kafka's UnifiedLog loads it after {damages} damages of side files (seed {seed})"
        yield what, damages_loaded(kafka, work, seed=seed, count=damages)
    base = root_of_cases(work, {topic_of(case): case for case in tried})
    for mode in MODES:
        place = work / mode
        place.mkdir()
        with quiet():
            yield f"a broker starts with all cases that {mode} recovered", started(base, place, mode)


def cases_loaded(kafka: Kafka, work: Path, tried: list[Case]) -> Problems:
    yes_count = 0
    for case in tried:
        for mode in MODES:
            root = work / "case"
            recovery_case(case, root)
            yes, problems = recovered_alike(kafka, root, mode)
            yes_count += len(yes)
            yield from (f"{case}, {mode}: {one}" for one in problems)
            shutil.rmtree(root)
    if yes_count < len(tried):
        yield f"{yes_count} recoveries of {len(tried)} cases said yes"


def damages_loaded(kafka: Kafka, work: Path, *, seed: int, count: int) -> Problems:
    base = broker_root(work / "base")
    tried = yes_count = number = 0
    while tried < count:
        root, name = work / "damaged", f"{seed}-{number}"
        mode = MODES[number % len(MODES)]
        damages = damaged_root(base, root, seed=name)
        yes, problems = recovered_alike(kafka, root, mode)
        yield from (f"damages {name}, {mode}: {one}; {damages}" for one in problems)
        shutil.rmtree(root)
        tried += len(damages)
        yes_count += len(yes)
        number += 1
    if yes_count < count:
        yield f"{yes_count} partitions of {number} roots were recovered"


def recovered_alike(kafka: Kafka, root: Path, mode: RecoveryMode) -> tuple[set[str], list[str]]:
    """Recover a root; return the partitions that it says yes to, and what Kafka's classes say otherwise of them."""
    yes = recovered_partitions(root, mode)
    problems = [problem for name in sorted(yes) for problem in loaded_alike(kafka, root, name)]
    return yes, problems


def recovered_partitions(root: Path, mode: RecoveryMode) -> set[str]:
    try:
        return {str(one.topic_partition) for one in recover(root, mode) if is_yes(one)}
    except KStoreError:
        return set()


def loaded_alike(kafka: Kafka, root: Path, name: str) -> Problems:
    """Load a recovered partition with kstore, and with Kafka as after a clean shutdown; compare their answers, and the
    files before and after.
    """
    directory = root / name
    before = kept_files(directory)
    with open_log(directory, "a", LogConfig()) as log:
        ours = state_of(log)
    start, point = (offset_of(root / file, name) for file in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT))
    theirs = kafka.ask("open", directory, "true", start, point, 0, *KAFKA_SETTINGS)
    if "error" in theirs:
        yield f"{name}: Kafka does not load it: {theirs}"
        return
    state = kafka.ask("state")
    kafka.ask("close")
    yield from differences(name, compared(ours), compared(state))
    after = kept_files(directory)
    for file in sorted(before.keys() | after.keys()):
        if before.get(file) != after.get(file):
            yield f"{name}: {file} is another one after loading"


def offset_of(checkpoint: Path, name: str) -> int:
    return read_offset_checkpoint(checkpoint).get(name, 0) if checkpoint.exists() else 0


def compared(state: Answer) -> Answer:
    return {name: state[name] for name in COMPARED}


def kept_files(directory: Path) -> dict[str, bytes]:
    """The files that a clean loading leaves as they are, without those that say the same if they are missing."""
    found = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    empty = ((".txnindex", (b"",)), (LEADER_EPOCH_CHECKPOINT, (b"", b"0\n0\n")))
    return {
        name: content
        for name, content in found.items()
        if name.endswith(KEPT) and not any(name.endswith(suffix) and content in none for suffix, none in empty)
    }


def root_of_cases(work: Path, tried: dict[str, Case]) -> Path:
    """Make a root with all cases in the places of partitions that its cluster knows."""
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = broker_of(root, work)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        for topic in tried:
            topic_id(client, topic, ())
    lay_out(root, tried)
    return root


def broker_of(root: Path, work: Path) -> Broker:
    return Broker(root, work, f"metadata.log.dir={root}\n")


def started(base: Path, work: Path, mode: RecoveryMode) -> Problems:
    """Recover a copy of the root of all cases; start a broker with it."""
    root = work / "root"
    shutil.copytree(base, root)
    names = {path.name for path in root.glob("recovery-*-0")}
    yes = recovered_partitions(root, mode)
    for name in names - yes:
        # It was refused, with what is wrong with it; a user takes it away or recovers it in another mode.
        shutil.rmtree(root / name)
    if len(yes) < len(names) / 2:
        yield f"{len(yes)} of {len(names)} were recovered"
    if recovered_partitions(root, mode) != yes or not (root / CLEAN_SHUTDOWN_FILE).exists():
        yield "what was recovered is not recovered the second time, or the root is not marked as closed cleanly"
    topics = {name.removesuffix("-0") for name in yes}
    broker = broker_of(root, work)
    with broker.running() as client:
        yield from served(client, root, topics, reads=mode == "salvage")
    yield from (problem for problem in clean_start(broker, topics) if not OF_THE_CLUSTER.search(problem))
    strays = sorted(path.name for path in root.iterdir() if path.name.endswith("-stray"))
    if strays:
        yield f"moved away: {', '.join(strays)}"


def topic_of(case: Case) -> str:
    """Return a name without words that a broker says of damage."""
    return f"{case.set_name}-{case.name}".replace("corrupt", "wrong")


def lay_out(root: Path, tried: dict[str, Case]) -> None:
    """Put each case in the place of the empty partition of its topic, without a partition.metadata or an empty one."""
    offsets: dict[str, dict[str, int]] = {RECOVERY_POINT_CHECKPOINT: {}, LOG_START_OFFSET_CHECKPOINT: {}}
    for number, (topic, case) in enumerate(tried.items()):
        directory = root / f"{topic}-0"
        shutil.rmtree(directory)
        shutil.copytree(case.directory("before"), directory)
        metadata = directory / PARTITION_METADATA
        metadata.unlink(missing_ok=True)
        if number % 2:
            metadata.touch()
        marks = {RECOVERY_POINT_CHECKPOINT: case.recovery_point, LOG_START_OFFSET_CHECKPOINT: case.log_start_offset}
        for file, offset in marks.items():
            if offset is not None:
                offsets[file][f"{topic}-0"] = offset
    for file, found in offsets.items():
        write_offset_checkpoint(root / file, found)
    (root / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)


def served(client: Client, root: Path, topics: set[str], *, reads: bool) -> Problems:
    """What the broker answers otherwise than kstore does while the broker runs. reads: whether records are read too."""
    with open_store(root) as store:
        for topic in sorted(topics):
            log = store.log(topic)
            wanted = [log.log_start_offset, log.log_end_offset]
            found = [line["offset"] for line in client.ask("offsets", topic, 0, ISOLATIONS[0], EARLIEST, LATEST)]
            if found != wanted:
                yield f"{topic}: from {found} in place of {wanted}"
            if found != wanted or not reads:
                continue
            expected = [record.offset for record in log.read()]
            offsets = [line["offset"] for line in records_of(client, topic, ISOLATIONS[0])]
            if offsets != expected:
                yield f"{topic}: {len(offsets)} records in place of {len(expected)}"
