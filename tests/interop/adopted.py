"""Roots that kstore adopted, under brokers of several releases: Java's consumer reads what kstore reads, and goes on;
producers go on, and nothing is set aside.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import kstore
from kstore.adoption.changes import keep_topics_in_metadata
from kstore.adoption.report import AdoptionReport
from kstore.log.files.checkpoints import read_leader_epoch_checkpoint
from kstore.record import MemoryRecords
from kstore.record.builder import MemoryRecordsBuilder
from kstore.store.store import open_store
from kstore.types import INTERNAL_TOPICS, OffsetAndMetadata, TopicPartition
from tests.golden.sets import unpack
from tests.interop import metadata_tables
from tests.interop.broker import BROKER_JVM, Broker, Client, free_ports
from tests.interop.comparison import records_difference
from tests.interop.programs import BUILD, SOURCES, fetch_jars
from tests.interop.store import ISOLATIONS, Problems
from tests.interop.store_topics import TOPICS, sent
from tests.reference.codec import Record
from tests.reference.verdicts import as_reference

VERSIONS = ("3.9.2", "4.1.2", "4.4.0")
GROUP = "goes-on"
# Under which the client of the broker produces to the first partition of codec-none.
TRANSACTIONAL_ID = "broker-codec-none-0"
COMMITTED_OFFSET = 5
FORTY_YEARS_MS = 40 * 365 * 24 * 60 * 60 * 1000
SETTINGS = """
num.network.threads=1
num.io.threads=2
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=2097152
group.initial.rebalance.delay.ms=0
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
"""
Expected = dict[tuple[TopicPartition, str], list[Record]]


@dataclass
class Adopted:
    """Adopted roots, and what is to be read in them.

    written: the topic in which the client produces; groups: whether GROUP committed in it.
    """

    report: AdoptionReport
    expected: Expected = field(default_factory=dict)
    written: str = "codec-none"
    has_group: bool = False


class AdoptedBroker(Broker):
    """A broker of one release with the lines that the adoption printed, and free ports."""

    def __init__(self, version: str, adopted: Adopted, work: Path) -> None:
        self.root, self.work, self.pid, self.lines = Path(adopted.report.roots[0]), work, 0, []
        self._process = None
        self._jvm = BROKER_JVM
        self._jars = BUILD / f"adopted-{version}"
        self.port, self.controller_port = free_ports(2)
        lines = "\n".join(adopted.report.server_properties)
        for port, own in ((9092, self.port), (9093, self.controller_port)):
            lines = lines.replace(f"localhost:{port}", f"127.0.0.1:{own}")
        self.settings = work / "server.properties"
        self.settings.write_text(lines + SETTINGS)


def steps(work: Path, *, versions: tuple[str, ...] = VERSIONS, only: str = "") -> Iterator[tuple[str, Problems]]:
    for version in versions:
        jars = BUILD / f"adopted-{version}"
        fetch_jars(SOURCES / "adopted" / "pom.xml", version, jars)
        (jar,) = (jars / "lib").glob("kafka-metadata-*.jar")
        yield f"Kafka {version} has the records that kstore writes", metadata_tables.problems(jar)
    kinds: dict[str, Callable[[Path], Adopted]] = {
        "born by kstore": born,
        "exported by kstore": exported,
        "exported of a root and its tier": exported_of_a_tier,
        "exported of an encrypted tier alone": exported_of_a_tier_alone,
        "salvaged": salvaged,
        "in two log.dirs": in_two_roots,
        "of a broker 4.4.0, without its metadata": lambda place: without_metadata(place, "main-4.4.0"),
        "of a broker 3.9.2, without its metadata": lambda place: without_metadata(place, "main-3.9.2"),
        "of a broker 4.4.0, taken over": lambda place: taken_over(place, "main-4.4.0"),
        "of one of two brokers": lambda place: without_metadata(place, "epochs-4.4.0", tree="broker1", written="ep-a"),
        "of a broker 0.8.2.2": lambda place: without_metadata(place, "v0-0.8.2.2", written="old-none"),
        "of a broker 0.10.0.1": lambda place: without_metadata(place, "v1-0.10.0.1", written="old-none"),
        "of a broker 2.8.2 with ZooKeeper": lambda place: without_metadata(place, "main-2.8.2"),
    }
    for name, make in kinds.items():
        for version in versions if only in name else ():
            place = work / f"{version}-{make.__name__}-{len(list(work.iterdir()))}"
            place.mkdir()
            adopted = make(place)
            adopted.expected = expected_of(adopted)
            yield f"a broker {version} serves a root {name}", served(version, adopted, place)
            shutil.rmtree(place)
    others = {
        "takes topics that came later": came_later,
        "takes what was restored later": restored_later,
        "has the features of its release": with_own_features,
        "starts after a crash between two steps of --replace": half_taken_over,
    }
    for name, check in others.items():
        for version in versions if only in name else ():
            place = work / f"{version}-{check.__name__}"
            place.mkdir()
            yield f"a broker {version} {name}", check(version, place)
            shutil.rmtree(place)


def served(version: str, adopted: Adopted, work: Path, *, protocol: str = "classic") -> Problems:
    broker = AdoptedBroker(version, adopted, work)
    with broker.running() as client:
        yield from read_alike(client, adopted.expected)
        if adopted.has_group:
            (answer,) = client.ask("group", adopted.written, 0, GROUP, protocol, 10, "close")
            if answer["first"] != COMMITTED_OFFSET:
                yield f"group {GROUP} went on from {answer['first']} in place of {COMMITTED_OFFSET}"
        ends = yield from gone_on(client, adopted)
    yield from set_aside(adopted)
    with broker.running() as client:
        (end,) = client.ask("offsets", adopted.written, 0, ISOLATIONS[0], -1)
        if end["offset"] != ends:
            yield f"{adopted.written} ends at {end['offset']} after a restart, expected {ends}"
        yield from read_alike(
            client, {name: rows for name, rows in adopted.expected.items() if name[0].topic != adopted.written}
        )
    yield from set_aside(adopted)
    yield from verified(adopted)


def came_later(version: str, work: Path) -> Problems:
    """Before a broker has started on the root, and after: topics are made, filled, grown and deleted by kstore."""
    with open_store(work / "root", "a") as store:
        store.create_topic("first")
        store.log("first").append(sent(5)[1])
    adopted = Adopted(kstore.adopt(work / "root"), written="first")
    broker = AdoptedBroker(version, adopted, work)
    refused: list[str] = []
    for number in range(3):
        with open_store(work / "root", "a") as store:
            keep_topics_in_metadata(store, refused.append)
            store.create_topic(f"later-{number}", 2, config={"retention_ms": -1})
            store.log(f"later-{number}", 1).append(sent(20)[1])
            store.create_partitions("first", number + 2)
            store.change_topic_config("first", {"max_message_bytes": 500_000 + number})
            if number:
                store.delete_topic(f"later-{number - 1}")
            with kstore.Consumer(store, group=GROUP) as consumer:
                consumer.commit({TopicPartition("first", 0): OffsetAndMetadata(number + 1)})
        yield from refused
        expected = expected_of(adopted)
        with broker.running() as client:
            yield from read_alike(client, expected)
            (committed,) = client.ask("committed", "first", 0, GROUP)
            if committed["offset"] != number + 1:
                yield f"the group committed {committed['offset']} for the broker, expected {number + 1}"
            client.ask("produce", "first", number + 1, "none", 3, "plain")
        yield from set_aside(adopted)
        if number and (work / "root" / f"later-{number - 1}-0").exists():
            yield f"the broker made later-{number - 1} again"
    yield from verified(adopted)


def restored_later(version: str, work: Path) -> Problems:
    """Before a broker has started on the root, and after: logs with higher leader epochs are restored, new ones and on
    in one that is there, and settings are taken back.
    """
    epochs, source, root = (0, 5, 15, 25), work / "source", work / "root"
    with open_store(source, "a") as store:
        for topic in ("grown", *(f"new-{number}" for number in range(3))):
            store.create_topic(topic)
            for number, epoch in enumerate(epochs):
                store.log(topic).append_as_follower(of_leader(epoch, base_offset=10 * number))
    with open_store(root, "a") as store:
        store.create_topic("first")
        store.log("first").append(sent(5)[1])
    adopted = Adopted(kstore.adopt(root), written="first")
    broker = AdoptedBroker(version, adopted, work)
    for number in range(3):
        kstore.restore(source, root, topics=["grown"], end_offset=10 * (number + 2))
        kstore.restore(source, root, topics=[f"new-{number}"])
        with open_store(root, "a") as store:
            keep_topics_in_metadata(store)
            store.change_topic_config("first", {"retention_ms": FORTY_YEARS_MS, "max_message_bytes": 500_000})
            store.change_topic_config("first", {}, reset=["retention_ms", "max_message_bytes"])
        expected = expected_of(adopted)
        with broker.running() as client:
            yield from read_alike(client, expected)
            client.ask("produce", f"new-{number}", 0, "none", 3, "plain")
        yield from set_aside(adopted)
        yield from verified(adopted)
        with open_store(root) as store:
            for topic, known in (("grown", epochs[: number + 2]), (f"new-{number}", epochs)):
                found = read_leader_epoch_checkpoint(str(root / f"{topic}-0" / "leader-epoch-checkpoint"), store._env)
                if [entry.epoch for entry in found or ()][: len(known)] != list(known):
                    yield f"{topic} has the leader epochs {found} after a broker, expected {known} and its own"


def of_leader(epoch: int, *, base_offset: int) -> MemoryRecords:
    """Ten records that a leader of an epoch has written."""
    builder = MemoryRecordsBuilder(base_offset=base_offset, partition_leader_epoch=epoch)
    for number in range(10):
        builder.append(timestamp_ms=1 + number, value=b"value")
    return builder.build()


def with_own_features(version: str, work: Path) -> Problems:
    """Cleanly closed, and after a crash, which costs the broker its place among the in-sync replicas."""
    for is_clean in (True, False):
        place = work / str(is_clean)
        place.mkdir()
        make_born(place / "root")
        if not is_clean:
            (place / "root" / ".kafka_cleanshutdown").unlink()
        release = version.rpartition(".")[0]
        adopted = Adopted(kstore.adopt(place / "root", release=release), has_group=True)
        adopted.expected = expected_of(adopted)
        yield from served(version, adopted, place, protocol="classic" if release == "3.9" else "consumer")


def half_taken_over(version: str, work: Path) -> Problems:
    """The snapshot is there, and so are the log and the quorum's state that it replaces."""
    shutil.copytree(unpack("main-4.4.0", "trees") / "data", work / "root")
    adopted = Adopted(kstore.adopt(work / "root", replace=True, release="3.9"), written="basic-none")
    for path in Path(adopted.report.set_aside or "").iterdir():
        path.rename(work / "root" / "__cluster_metadata-0" / path.name)
    adopted.expected = expected_of(adopted)
    yield from served(version, adopted, work)


def read_alike(client: Client, expected: Expected) -> Problems:
    for (partition, isolation), records in expected.items():
        problem = records_difference(records_of_partition(client, partition, isolation), records)
        if problem is not None:
            yield f"{partition}, {isolation}: {problem}"


def records_of_partition(client: Client, partition: TopicPartition, isolation: str) -> list[dict[str, object]]:
    lines = client.ask("consume", partition.topic, partition.partition, isolation)
    return [line for line in lines if line["case"] == "record"]


def gone_on(client: Client, adopted: Adopted) -> Iterator[str]:
    """Produce as a plain and as a transactional producer, and return where the log ends then."""
    topic = adopted.written
    (before,) = client.ask("offsets", topic, 0, ISOLATIONS[0], -1)
    client.ask("produce", topic, 0, "zstd", 20, "plain")
    for mode in ("commit", "abort"):
        client.ask("produce", topic, 0, "lz4", 5, mode)
    (after,) = client.ask("offsets", topic, 0, ISOLATIONS[0], -1)
    wanted = before["offset"] + 20 + 2 * 6
    if after["offset"] != wanted:
        yield f"{topic} ends at {after['offset']} after 32 offsets of producers, expected {wanted}"
    return wanted


def set_aside(adopted: Adopted) -> Problems:
    """What the broker renamed."""
    for root in adopted.report.roots:
        yield from (f"set aside: {path.name}" for path in Path(root).glob("*-stray"))


def verified(adopted: Adopted) -> Problems:
    for root in adopted.report.roots:
        yield from (f"kstore verify: {damage}" for damage in kstore.verify(root).damage)


def expected_of(adopted: Adopted) -> Expected:
    """What kstore reads of each partition now; of one with an open transaction, which the broker aborts, not what is
    committed.
    """
    expected: Expected = {}
    for root in adopted.report.roots:
        with open_store(root) as store:
            for partition in store.partitions:
                if partition.topic in INTERNAL_TOPICS:
                    continue
                log = store.log(*partition)
                for isolation in ISOLATIONS:
                    if isolation == ISOLATIONS[0] or not log.open_transactions():
                        records = log.read(isolation=isolation)
                        expected[partition, isolation] = [
                            as_reference(record) for record in records if not record.is_control
                        ]
    return expected


def make_born(root: Path) -> None:
    """A root with all kinds of topics: every codec, transactions, compacted, old records that are kept, a group."""
    with open_store(root, "a") as store:
        for topic in TOPICS:
            store.create_topic(topic.name, config=topic.config)
            topic.write(store.log(topic.name))
        store.create_topic("compacted", 3, config={"cleanup_policy": "compact"})
        store.create_topic("old", config={"retention_ms": -1})
        log = store.log("old")
        log.append(sent(50)[1])
        log.roll()
        log.append(sent(50)[1])
        with kstore.Producer(store, transactional_id=TRANSACTIONAL_ID) as producer:
            producer.init_transactions()
            for commits in (True, False):
                producer.begin_transaction()
                for number in range(9):
                    producer.send("compacted", partition=number % 3, key=b"%d" % number, value=b"%d" % commits)
                producer.commit_transaction() if commits else producer.abort_transaction()
        with kstore.Consumer(store, group=GROUP) as consumer:
            consumer.commit({TopicPartition("codec-none", 0): OffsetAndMetadata(COMMITTED_OFFSET)})


def born(place: Path) -> Adopted:
    make_born(place / "root")
    return Adopted(kstore.adopt(place / "root", node_id=3), has_group=True)


def exported(place: Path) -> Adopted:
    make_born(place / "source")
    kstore.export(place / "source", place / "root", format="kstore")
    return Adopted(kstore.adopt(place / "root", keep_forever=True))


def exported_of_a_tier(place: Path) -> Adopted:
    source = unpack("tier", "tier-local-4.1.2") / "tier-local-4.1.2"
    kstore.export(source / "broker", place / "root", format="kstore", tier=source / "tier")
    return Adopted(kstore.adopt(place / "root", keep_forever=True), written="tl-codecs")


def exported_of_a_tier_alone(place: Path) -> Adopted:
    source = unpack("tier", "tier-aiven-4.1.2") / "tier-aiven-4.1.2"
    keys = {name: source / "keys" / f"{name}.private.pem" for name in ("key1", "key2")}
    tier = source / "tier"
    kstore.export(tier, place / "root", format="kstore", tier=tier, tier_keys=keys)
    return Adopted(kstore.adopt(place / "root", keep_forever=True), written="ta-mixed")


def salvaged(place: Path) -> Adopted:
    make_born(place / "root")
    log = next((place / "root" / "codec-lz4-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    for partition in kstore.recover(place / "root" / "codec-lz4-0", mode="salvage"):
        if partition.report is None:
            raise AssertionError(f"not salvaged: {partition.refusal}")
    return Adopted(kstore.adopt(place / "root"), has_group=True)


def in_two_roots(place: Path) -> Adopted:
    make_born(place / "one")
    make_born(place / "two")
    for path in (place / "two").iterdir():
        is_moved = path.name in ("compacted-1", "codec-zstd-0")
        if path.is_dir() and not is_moved:
            shutil.rmtree(path)
        elif is_moved:
            # With the id of its topic: the two roots become one broker's.
            shutil.copy(place / "one" / path.name / "partition.metadata", path / "partition.metadata")
            shutil.rmtree(place / "one" / path.name)
    (place / "two" / "meta.properties").unlink()
    return Adopted(kstore.adopt([place / "one", place / "two"]), has_group=True)


def without_metadata(place: Path, name: str, *, tree: str = "data", written: str = "basic-none") -> Adopted:
    shutil.copytree(unpack(name, "trees") / tree, place / "root")
    shutil.rmtree(place / "root" / "__cluster_metadata-0", ignore_errors=True)
    return Adopted(kstore.adopt(place / "root", keep_forever=True), written=written)


def taken_over(place: Path, name: str) -> Adopted:
    shutil.copytree(unpack(name, "trees") / "data", place / "root")
    return Adopted(kstore.adopt(place / "root", node_id=8, replace=True, release="3.9"), written="basic-none")
