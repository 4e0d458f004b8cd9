"""Goal: a type checker finds wrong calls of kstore, and finds nothing in right ones.
Method: mypy --strict on calls that must be refused, each with its error, and on calls and programs that must not;
pyright on the programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.linters import ROOT

pytestmark = pytest.mark.build

PROGRAMS = sorted((ROOT / "examples" / "programs").glob("*.py"))
# One strict run over what users copy; of kstore only what they import.
PYRIGHT = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "reportMissingTypeStubs": False}

HEAD = """from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

import kstore
from kstore import aio, serializers
from kstore.consumer import ConsumerSettings
from kstore.producer import ProducerSettings
from kstore.wire.compiler import codec
from kstore.wire.messages import ProduceRequest


@dataclass
class Order:
    number: int


def encoded(order: Order) -> bytes:
    return b"%d" % order.number


def decoded(data: bytes) -> Order:
    return Order(int(data))


store = kstore.open_store("root", "a")
log = kstore.open_log("root/t-0", "a")
"""
WRONG = {
    "kstore.Producer(store, linger_mss=5)": 'Unexpected keyword argument "linger_mss" for "Producer"',
    'kstore.Producer(store, linger_ms="5")': 'incompatible type "str"; expected "int"',
    'kstore.Producer(store, compression_type="lz5")': "incompatible type \"Literal['lz5']\"",
    "kstore.Producer(store, acks=2)": 'incompatible type "Literal[2]"',
    "kstore.ProducerConfig(linger_mss=5)": 'Unexpected keyword argument "linger_mss" for "ProducerConfig"',
    "kstore.LogConfig(segment_byte=5)": 'Unexpected keyword argument "segment_byte" for "LogConfig"',
    'kstore.open_log("root/t-0", "a", recovery="salvag")': "No overload variant",
    'log.append(b"value")': 'incompatible type "bytes"',
    'kstore.MemoryRecordsBuilder().append(timestamp_ms=0, value="text")': 'incompatible type "str"',
    'kstore.recover("root", "salvag")': "incompatible type \"Literal['salvag']\"",
    'kstore.verify("root").partitions[0].damages': 'has no attribute "damages"',
    'kstore.recover("root")[0].report.damage': 'has no attribute "damage"',
    'kstore.Record(value="x")': 'Argument "value" to "Record" has incompatible type "str"; expected "Buffer | None"',
    "kstore.Producer(store, value_serializer=str.encode).send('t', 5)": 'type "int"; expected "str | None"',
    'kstore.Consumer(store, group_id="g")': 'Argument "group_id" to "Consumer" has incompatible type "str"; expected',
    "aio.Producer(store, linger_mss=5)": 'Unexpected keyword argument "linger_mss" for "Producer"',
    'aio.Consumer(store, group_id="g")': 'Unexpected keyword argument "group_id" for "Consumer"',
    "kstore.Consumer(store, value_deserializer=serializers.StringDeserializer()).poll()[0].value.no": '"str" has no',
    "kstore.Consumer(store, key_deserializer=serializers.LongDeserializer()).poll()[0].key.no": '"int" has no attr',
    "next(log.read(value_deserializer=serializers.UUIDDeserializer())).value.no": '"UUID" has no attr',
    "next(log.follow(key_deserializer=decoded)).key.no": '"Order" has no attr',
    "ProduceRequest(ack=1)": 'Unexpected keyword argument "ack" for "ProduceRequest"',
    "codec(ProduceRequest, version=9).decode(b'')[0].topic_data[0].partition_data[0].record": 'no attribute "record"',
    "log.offset_for_timestamp('2024')": 'incompatible type "str"; expected "int | datetime"',
}
RIGHT = """
settings: ProducerSettings = {"linger_ms": 5, "acks": "flushed", "value_serializer": "string"}
with kstore.Producer(store, **settings) as producer:
    producer.send("t", "text")
with kstore.Producer(store, compression_type="lz4", value_serializer=str.encode) as producer:
    producer.send("t", "text").result()
log.append(kstore.Record(value=b"v"))
log.append([kstore.Record(key=b"k", value=b"v", headers=[("h", b"v")])], ack="flushed")
harmed: bool = not kstore.verify("root", topics=["t"]).is_unharmed
paths: list[str] = [damage.path for damage in kstore.verify("root").damage]
reading: ConsumerSettings = {"group": "g", "value_deserializer": "string"}
anything: kstore.Consumer = kstore.Consumer(store, **reading)
texts = serializers.StringDeserializer()
orders = kstore.Consumer(store, topics=["t"], key_deserializer=texts, value_deserializer=decoded)
same: kstore.Consumer[str, Order] = orders
for record in orders.poll():
    name: str = record.key
    number: int = record.value.number
    when: datetime | None = record.timestamp
    topic: str | None = record.topic
keyed = kstore.Producer(store, key_serializer=str.encode, value_serializer=encoded, linger_ms=0)
keyed.send("t", Order(5), key="k", timestamp_ms=datetime.now(timezone.utc))
keyed.send("t", None)
typed: kstore.Producer[str, Order] = keyed
plain: kstore.Record = kstore.Record(value=b"v")


async def of_tasks() -> list[Order]:
    async with aio.Consumer(store, topics=["t"], value_deserializer=decoded) as consumer:
        found: list[kstore.Record[object, Order]] = [*await consumer.poll()]
        async for record in consumer:
            found.append(record)
    async with aio.Producer(store, value_serializer=encoded) as producer:
        await producer.send("t", Order(1))
    return [record.value for record in found]


def total(records: list[kstore.Record[str, Order]]) -> int:
    return sum(record.value.number for record in records)


print(total(orders.poll()))
request: ProduceRequest = codec(ProduceRequest, version=9).decode(b"")[0]
request.topic_data.append(ProduceRequest.TopicProduceData(name="t"))
refused = [one.refusal for one in kstore.recover("root", "point_in_time", dry_run=True) if one.report is None]
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the type checker prints of both modules, in one run."""
    directory = tmp_path_factory.mktemp("calls")
    (directory / "wrong.py").write_text(HEAD + "\n".join(WRONG) + "\n")
    (directory / "right.py").write_text(HEAD + RIGHT)
    # With the settings of the linter, which has left in its cache what it found in kstore.
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += [str(directory / "wrong.py"), str(directory / "right.py"), *map(str, PROGRAMS)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


def test_type_checker_finds_each_wrong_call(lines: list[str]) -> None:
    missed = [
        call
        for number, (call, said) in enumerate(WRONG.items(), HEAD.count("\n") + 1)
        if not any(f"wrong.py:{number}: error" in line and said in line for line in lines)
    ]
    assert missed == [], "\n".join(lines)


def test_type_checker_finds_nothing_in_right_calls(lines: list[str]) -> None:
    assert lines
    assert [line for line in lines if "wrong.py" not in line] == []


def test_pyright_finds_nothing_in_the_programs_of_the_examples(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright")
    places = {"include": [str(ROOT / "examples/programs")], "extraPaths": [str(ROOT), str(ROOT / "examples/programs")]}
    environment = {"venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**PYRIGHT, **places, **environment}))
    command = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--outputjson"]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == len(PROGRAMS) > 5
