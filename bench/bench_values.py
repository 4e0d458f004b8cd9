"""Values of a log as typed columns: kstore.scan, the core over memory, fastavro's loop, a loop in C, pyarrow.json.

Measured: `kstore.scan(value="avro")` of framed values of eight fields, 100 bytes each, to typed columns; the decoder
over an array in memory; two of twenty fields against all, against the scan that returns bytes, and (Avro) against that
scan with a loop in C that takes the two fields; `kstore.scan(value="json")` of values of eight fields, 175 bytes each,
and its decoder over memory.
Compared with: the same scan in bytes, fastavro's loop over it and `pyarrow.array`; fastavro's loop alone, which ends
with dicts; `rivals/avro.c`, a loop for the one schema without a check; the scan that returns bytes; `pyarrow.json`
alone over the same values as lines, in one thread.
"""

from __future__ import annotations

import ctypes
import io
import json
import platform
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.json

import kstore
from bench.common import BENCH_DIRECTORY, Case, Contestant, Settings, interleaved, require_equal, without_result
from bench.limit import compiled
from kstore.values.avro.columns import columns_of
from kstore.values.avro.reader import AvroReader
from kstore.values.avro.schema import parse_avro_schema
from kstore.values.json_format.columns import nodes_of
from kstore.values.json_format.reader import JsonReader

SEED = 7
SCHEMA_ID = 0x01020304
FRAME = b"\0" + SCHEMA_ID.to_bytes(4, "big")
RECORD_BYTES = 110
BATCH_BYTES = 256 * 1024
MOST_BYTES = 1 << 30
SOURCE = BENCH_DIRECTORY / "rivals" / "avro.c"
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
RIDE = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": "string"},
        {"name": "origin", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "distance", "type": "double"},
        {"name": "departed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": "string"},
        {"name": "is_late", "type": "boolean"},
    ],
}
TWENTY = {
    "type": "record",
    "name": "Wide",
    "fields": [
        {"name": f"f{number:02}", "type": ("long", "string", "double", ["null", "int"])[number % 4]}
        for number in range(20)
    ],
}
JSON_TWENTY = pa.struct(
    [(f"f{number:02}", (pa.int64(), pa.string(), pa.float64(), pa.int64())[number % 4]) for number in range(20)]
)
SCAN, BYTES = "kstore.scan, value=avro", "kstore.scan, value as bytes"
DECODER, LOOP, LIMIT = "the decoder over memory", "fastavro's loop, dicts", "avro.c"
FASTAVRO = "kstore.scan, fastavro's loop, pyarrow.array"
ALL, TWO = "kstore.scan, 20 fields", "kstore.scan, 2 of 20 fields"
JSON_RIDE = pa.struct(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("delay", pa.int64()),
        ("distance", pa.float64()),
        ("departed", pa.int64()),
        ("note", pa.string()),
        ("is_late", pa.bool_()),
    ]
)
JSON_RECORD_BYTES = 200
JSON_SCAN, JSON_ALONE = "kstore.scan, value=json", "pyarrow.json alone, a line a value"
JSON_DECODER, JSON_PIECE = "the decoder over memory, JSON", "pyarrow.json over the same values"
TARGET_OF_PYARROW = 0.7
TARGET_OF_FASTAVRO = 5.0
TARGET_OF_PROJECTION = 2.0
LIMIT_TWO = "kstore.scan, value as bytes, and avro.c for 2 of 20 fields"
TARGET_OF_LIMIT = 0.8


def rides(count: int) -> Iterator[dict[str, Any]]:
    """Yield records of eight fields, which take about 100 bytes."""
    source = random.Random(SEED)
    for number in range(count):
        yield {
            "id": number * 1000,
            "carrier": source.choice(("AA", "DL", "UA", "WN")),
            "origin": f"AIRPORT{source.randrange(500)}",
            "delay": None if source.random() < 0.3 else source.randrange(-20, 300),
            "distance": source.random() * 3000,
            "departed": 1_700_000_000_000 + number * 17,
            "note": "x" * source.randrange(30, 70),
            "is_late": source.random() < 0.2,
        }


def wide(count: int) -> Iterator[dict[str, Any]]:
    """Yield records of twenty fields of four kinds."""
    source = random.Random(SEED)
    for _ in range(count):
        values = (source.randrange(1 << 40), "x" * source.randrange(12), source.random(), source.randrange(1000))
        yield {field["name"]: values[number % 4] for number, field in enumerate(TWENTY["fields"])}


def in_avro(schema: dict[str, Any], rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Yield framed values."""
    parsed = fastavro.parse_schema(schema)
    for row in rows:
        target = io.BytesIO(FRAME)
        target.seek(len(FRAME))
        fastavro.schemaless_writer(target, parsed, row)
        yield target.getvalue()


def log_of(topic: str, values: Iterator[bytes], directory: Path) -> Path:
    """Write a log, once; the batches have no codec."""
    if not directory.exists():
        unfinished = directory.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with kstore.open_store(unfinished, "a") as store:
            store.create_topic(topic, partitions=1)
            with kstore.Producer(store, batch_size=16 * 1024, linger_ms=5) as producer:
                for value in values:
                    producer.send(topic, value)
        unfinished.rename(directory)
    return directory / f"{topic}-0"


def registry_of(schema: dict[str, Any]) -> kstore.SchemaRegistry:
    subject = f"{schema['name'].lower()}-value"
    return kstore.SchemaRegistry([kstore.RegisteredSchema(SCHEMA_ID, subject, 1, "AVRO", json.dumps(schema))])


def read_with_fastavro(partition: Path, parsed: Any, arrow_type: pa.DataType) -> pa.ChunkedArray:
    """Return a typed column by the loop that users write."""
    chunks = []
    for batch in kstore.scan(partition, columns=["value"]):
        rows = []
        for value in batch.column("value").to_pylist():
            source = io.BytesIO(value)
            source.seek(len(FRAME))
            rows.append(fastavro.schemaless_reader(source, parsed, None))
        chunks.append(pa.array(rows, arrow_type))
    return pa.chunked_array(chunks)


def loop_of_fastavro(values: list[bytes], parsed: Any) -> None:
    for value in values:
        source = io.BytesIO(value)
        source.seek(len(FRAME))
        fastavro.schemaless_reader(source, parsed, None)


class _Text(ctypes.Structure):
    _fields_ = [("ends", ctypes.c_void_p), ("bytes", ctypes.c_void_p)]


class _Rides(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("id", "departed", "delay", "distance", "has_delay", "is_late")),
        *((name, _Text) for name in ("carrier", "origin", "note")),
    ]


class Limit:
    """rivals/avro.c over one array of values; the columns are filled again by each run."""

    def __init__(self, library: ctypes.CDLL, values: pa.BinaryArray) -> None:
        rows, size = len(values), values.nbytes + 64
        self._values = values
        self._run = library.limit_rides
        self._run.restype = ctypes.c_int64
        kinds = {"id": np.int64, "departed": np.int64, "delay": np.int32, "distance": np.float64}
        self.columns: dict[str, Any] = {name: np.zeros(rows, kind) for name, kind in kinds.items()}
        self.columns |= {name: np.zeros(rows // 8 + 1, np.uint8) for name in ("has_delay", "is_late")}
        self._texts = {
            name: (np.zeros(rows + 1, np.int32), np.zeros(size, np.uint8)) for name in ("carrier", "origin", "note")
        }
        addresses = {name: array.ctypes.data for name, array in self.columns.items()}
        texts = {name: _Text(ends.ctypes.data, data.ctypes.data) for name, (ends, data) in self._texts.items()}
        self._rides = _Rides(**addresses, **texts)

    def fill(self) -> None:
        _, offsets, data = self._values.buffers()
        self._run(
            ctypes.c_void_p(data.address),
            ctypes.c_void_p(offsets.address + 4 * self._values.offset),
            ctypes.c_int64(len(self._values)),
            ctypes.byref(self._rides),
        )

    def array(self) -> pa.StructArray:
        """Return what the last fill stored."""
        rows = len(self._values)

        def bits(name: str) -> Any:
            return np.unpackbits(self.columns[name], count=rows, bitorder="little").astype(bool)

        def text(name: str) -> pa.Array:
            ends, data = self._texts[name]
            return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(data))

        arrays = {
            "id": pa.array(self.columns["id"]),
            "carrier": text("carrier"),
            "origin": text("origin"),
            "delay": pa.array(self.columns["delay"], mask=~bits("has_delay")),
            "distance": pa.array(self.columns["distance"]),
            "departed": pa.array(self.columns["departed"]).cast(pa.timestamp("ms", "UTC")),
            "note": text("note"),
            "is_late": pa.array(bits("is_late")),
        }
        return pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))


def limit_of(values: pa.BinaryArray, settings: Settings) -> Limit | None:
    if platform.machine() != "x86_64":
        return None
    library = compiled(SOURCE, FLAGS, settings)
    return None if library is None else Limit(ctypes.CDLL(str(library)), values)


def decode_in_memory(reader: AvroReader | JsonReader, values: pa.BinaryArray) -> pa.Array:
    (part,) = reader.decode(values)
    return part.values


def ride_case(settings: Settings) -> Case:
    """Check that all contestants read the same, then time them in interleaved rounds."""
    count = max(500, settings.segment_bytes // RECORD_BYTES // 4)
    partition = log_of("ride", in_avro(RIDE, rides(count)), settings.data_directory / f"rides-{count}")
    parsed, avro = fastavro.parse_schema(RIDE), parse_avro_schema(json.dumps(RIDE))
    scan = partial(kstore.scan, partition, value="avro", schemas=registry_of(RIDE), mode="FAILFAST")
    in_bytes = kstore.scan(partition, columns=["value"]).to_table()["value"].combine_chunks()
    whole = scan().to_table()["value"].combine_chunks()
    # A piece that fits the cache, as a batch of a scan does.
    piece = in_bytes.slice(0, max(1, BATCH_BYTES // RECORD_BYTES))
    reader = AvroReader(columns_of(avro), lambda _: avro, framing="confluent", most_bytes=MOST_BYTES)
    answers: dict[str, object] = {
        SCAN: whole,
        FASTAVRO: read_with_fastavro(partition, parsed, whole.type).combine_chunks(),
    }
    pieces: dict[str, object] = {DECODER: decode_in_memory(reader, piece)}
    listed = piece.to_pylist()
    contestants = [
        Contestant(SCAN, lambda: drain(scan(columns=["value"])), count),
        Contestant(BYTES, lambda: drain(kstore.scan(partition, columns=["value"])), count),
        Contestant(FASTAVRO, without_result(partial(read_with_fastavro, partition, parsed, whole.type)), count),
        Contestant(LOOP, partial(loop_of_fastavro, listed, parsed), len(piece)),
        Contestant(DECODER, without_result(partial(decode_in_memory, reader, piece)), len(piece)),
    ]
    limit = limit_of(piece, settings)
    if limit is not None:
        limit.fill()
        pieces[LIMIT] = limit.array()
        contestants.append(Contestant(LIMIT, limit.fill, len(piece)))
    require_equal("columns of values", answers)
    require_equal("columns of a piece", pieces)
    case = Case(title=f"Avro, eight fields: {count} records", unit="rec", bytes_per_unit=in_bytes.nbytes / count)
    case.samples = interleaved(contestants, settings)
    case.add_ratio(SCAN, FASTAVRO, target=TARGET_OF_FASTAVRO)
    case.add_ratio(DECODER, LOOP, target=TARGET_OF_FASTAVRO)
    case.add_ratio(DECODER, LIMIT)
    case.add_ratio(SCAN, BYTES)
    return case


def drain(scan: kstore.Scan) -> None:
    for _ in scan:
        pass


def projection_cases(settings: Settings) -> Iterator[Case]:
    """Time two of twenty fields against all, in Avro and in JSON."""
    count = max(500, settings.segment_bytes // RECORD_BYTES // 8)
    partition = log_of("wide", in_avro(TWENTY, wide(count)), settings.data_directory / f"wide-{count}")
    scan = partial(kstore.scan, partition, value="avro", schemas=registry_of(TWENTY), mode="FAILFAST")
    case = projection_case(f"Avro, twenty fields: {count} records", partition, scan, settings, limit_two(settings))
    case.add_ratio(TWO, LIMIT_TWO, target=TARGET_OF_LIMIT)
    yield case
    values = (json.dumps(row, separators=(",", ":")).encode() for row in wide(count))
    partition = log_of("wide", values, settings.data_directory / f"wide-json-{count}")
    scan = partial(kstore.scan, partition, value="json", schema=JSON_TWENTY, mode="FAILFAST")
    yield projection_case(f"JSON, twenty fields: {count} records", partition, scan, settings)


def limit_two(settings: Settings) -> Callable[[Path], pa.StructArray] | None:
    """Return what reads two of twenty fields by avro.c, of which all but these fields is the scan of bytes."""
    library = compiled(SOURCE, FLAGS, settings) if platform.machine() == "x86_64" else None
    if library is None:
        return None
    run = ctypes.CDLL(str(library)).limit_two
    run.restype = ctypes.c_int64

    def read(partition: Path) -> pa.StructArray:
        chunks = []
        for batch in kstore.scan(partition, columns=["value"]):
            values = batch.column("value")
            rows, (_, offsets, data) = len(values), values.buffers()
            numbers, ends = np.empty(rows, np.float64), np.zeros(rows + 1, np.int32)
            texts = np.empty(values.nbytes + 64, np.uint8)
            run(
                ctypes.c_void_p(data.address),
                ctypes.c_void_p(offsets.address + 4 * values.offset),
                ctypes.c_int64(rows),
                ctypes.c_void_p(numbers.ctypes.data),
                ctypes.byref(_Text(ends.ctypes.data, texts.ctypes.data)),
            )
            text = pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(texts))
            chunks.append(pa.StructArray.from_arrays([pa.array(numbers), text], names=["f06", "f13"]))
        return pa.concat_arrays(chunks)

    return read


def projection_case(
    title: str,
    partition: Path,
    scan: Callable[..., kstore.Scan],
    settings: Settings,
    limit: Callable[[Path], pa.StructArray] | None = None,
) -> Case:
    """Time two of twenty fields of a scan against all, and against what no projection saves."""
    two = ["value.f06", "value.f13"]
    whole = scan(columns=["value"]).to_table()["value"].combine_chunks()
    narrow = scan(columns=two).to_table()
    answers: dict[str, object] = {
        TWO: [narrow[name].combine_chunks() for name in two],
        ALL: [whole.field("f06"), whole.field("f13")],
    }
    count = len(whole)
    contestants = [
        Contestant(ALL, lambda: drain(scan(columns=["value"])), count),
        Contestant(TWO, lambda: drain(scan(columns=two)), count),
        Contestant(BYTES, lambda: drain(kstore.scan(partition, columns=["value"])), count),
    ]
    if limit is not None:
        answers[LIMIT_TWO] = limit(partition).flatten()
        contestants.append(Contestant(LIMIT_TWO, without_result(partial(limit, partition)), count))
    require_equal("two fields", answers)
    case = Case(title=title, unit="rec", bytes_per_unit=whole.nbytes / count)
    case.samples = interleaved(contestants, settings)
    case.add_ratio(TWO, ALL, target=TARGET_OF_PROJECTION)
    case.add_ratio(TWO, BYTES)
    return case


def json_case(settings: Settings) -> Case:
    """Time JSON values of eight fields against pyarrow.json on the same values, a line each."""
    count = max(500, settings.segment_bytes // JSON_RECORD_BYTES // 4)
    values = (json.dumps(row, separators=(",", ":")).encode() for row in rides(count))
    partition = log_of("text", values, settings.data_directory / f"json-{count}")
    scan = partial(kstore.scan, partition, value="json", schema=JSON_RIDE, mode="FAILFAST", columns=["value"])
    in_bytes = kstore.scan(partition, columns=["value"]).to_table()["value"].combine_chunks()
    piece = in_bytes.slice(0, max(1, BATCH_BYTES // JSON_RECORD_BYTES))
    reader = JsonReader(nodes_of(JSON_RIDE), lambda _: None, framing="none", most_bytes=MOST_BYTES)
    whole, lines = b"\n".join(in_bytes.to_pylist()), b"\n".join(piece.to_pylist())
    answers: dict[str, object] = {
        JSON_SCAN: scan().to_table()["value"].combine_chunks(),
        JSON_ALONE: read_lines(whole).to_struct_array().combine_chunks(),
    }
    pieces: dict[str, object] = {
        JSON_DECODER: decode_in_memory(reader, piece),
        JSON_PIECE: read_lines(lines).to_struct_array().combine_chunks(),
    }
    require_equal("columns of JSON", answers)
    require_equal("columns of a piece of JSON", pieces)
    contestants = [
        Contestant(JSON_SCAN, lambda: drain(scan()), count),
        Contestant(JSON_ALONE, without_result(partial(read_lines, whole)), count),
        Contestant(JSON_DECODER, without_result(partial(decode_in_memory, reader, piece)), len(piece)),
        Contestant(JSON_PIECE, without_result(partial(read_lines, lines)), len(piece)),
    ]
    case = Case(title=f"JSON, eight fields: {count} records", unit="rec", bytes_per_unit=in_bytes.nbytes / count)
    case.samples = interleaved(contestants, settings)
    case.add_ratio(JSON_SCAN, JSON_ALONE, target=TARGET_OF_PYARROW)
    case.add_ratio(JSON_DECODER, JSON_PIECE, target=TARGET_OF_PYARROW)
    return case


def read_lines(lines: bytes) -> pa.Table:
    """Return what pyarrow.json reads, in one thread."""
    return pyarrow.json.read_json(
        io.BytesIO(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(list(JSON_RIDE)), unexpected_field_behavior="ignore"
        ),
    )


def run(settings: Settings) -> Iterator[Case]:
    """Time values of eight fields, in Avro and in JSON, then two of twenty."""
    yield ride_case(settings)
    yield json_case(settings)
    yield from projection_cases(settings)
