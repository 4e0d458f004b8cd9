"""A kstore producer and a broker's producer take turns on one root, with one transactional id: what each makes of it.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kstore.errors import KStoreError
from kstore.producer import Producer
from kstore.store.store import WritableStore, open_store
from tests.interop.broker import NODE_ID, Broker, Client, tool
from tests.interop.comparison import records_difference
from tests.interop.store import CLUSTER_ID, ISOLATIONS, Problems, clean_start, dumped, records_of
from tests.reference.verdicts import as_reference

TOPIC = "produced"
# What BrokerClient calls itself when it produces to partition 0.
TRANSACTIONAL_ID = f"broker-{TOPIC}-0"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 400
WAIT_S = 60


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "produced-root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        client.ask("create", TOPIC, 1)
        client.ask("produce", TOPIC, 0, "lz4", 5, "commit")
    yield "a kstore producer goes on after a broker's, with its transactional id", produced(root)
    yield "DumpLogSegments reads what the producer wrote", dumped(root)
    with broker.running() as client:
        yield "a consumer reads what the producer wrote", read_as_kstore_does(client, root)
        yield "a broker's producer goes on after kstore's", went_on(client, root)
    yield "the broker recovers and rebuilds nothing behind the producer", clean_start(broker, {TOPIC})
    yield "a kstore producer goes on once more", produced(root)
    yield "DumpLogSegments decodes the transaction state", transaction_state(root)


def produced(root: Path) -> Problems:
    """Produce in every codec, and one committed and one aborted transaction; read all of it back."""
    with open_store(root, "a") as store:
        expected = [(record.key, record.value) for record in store.log(TOPIC).read(isolation="read_committed")]
        try:
            expected += [*plain(store), *in_transactions(store)]
        except KStoreError as error:
            yield f"{type(error).__name__}: {error}"
            return
        found = [(record.key, record.value) for record in store.log(TOPIC).read(isolation="read_committed")]
        if found != expected:
            yield f"{len(found)} committed records in place of {len(expected)}"


def plain(store: WritableStore) -> list[tuple[bytes | None, bytes | None]]:
    rows = []
    for codec in CODECS:
        with Producer(store, compression_type=codec, batch_size=2000) as producer:
            for number in range(COUNT):
                key, value = b"key %d" % (number % 7), f"{codec} {number}".encode() * 10
                producer.send(TOPIC, value, key=key, headers=[("codec", codec.encode()), ("none", None)])
                rows.append((key, value))
    return rows


def in_transactions(store: WritableStore) -> list[tuple[bytes | None, bytes | None]]:
    rows: list[tuple[bytes | None, bytes | None]] = []
    with Producer(store, transactional_id=TRANSACTIONAL_ID) as producer:
        producer.init_transactions()
        for is_commit in (True, False, True):
            producer.begin_transaction()
            sent = [(None, b"transactional %d" % number) for number in range(20)]
            futures = [producer.send(TOPIC, value, key=key) for key, value in sent]
            producer.flush(WAIT_S)
            for future in futures:
                future.result(WAIT_S)
            if is_commit:
                producer.commit_transaction()
                rows += sent
            else:
                producer.abort_transaction()
    return rows


def read_as_kstore_does(client: Client, root: Path) -> Problems:
    with open_store(root) as store:
        for isolation in ISOLATIONS:
            expected = [as_reference(record) for record in store.log(TOPIC).read(isolation=isolation)]
            problem = records_difference(records_of(client, TOPIC, isolation), expected)
            if problem is not None:
                yield f"{isolation}: {problem}"


def went_on(client: Client, root: Path) -> Problems:
    """Let the broker's producer commit and abort with the transactional id that kstore's had."""
    with open_store(root) as store:
        before = store.log(TOPIC).log_end_offset
    for mode in ("commit", "abort"):
        client.ask("produce", TOPIC, 0, "zstd", 10, mode)
    (end,) = client.ask("offsets", TOPIC, 0, ISOLATIONS[1], -1)
    if end["offset"] != before + 2 * 11:
        yield f"ends at {end['offset']} behind {before} and two transactions of 10"


def transaction_state(root: Path) -> Problems:
    log = root / "__transaction_state-0" / "00000000000000000000.log"
    text = tool("kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(log))
    if f'"transactionalId":"{TRANSACTIONAL_ID}"' not in text:
        yield f"nothing of {TRANSACTIONAL_ID} in {text[-300:]}"
    for line in text.splitlines():
        if "isvalid: false" in line or "rror" in line:
            yield line
