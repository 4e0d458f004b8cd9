"""Which ratios bench/README.md shows: a table or two for each question that a user asks.

A table names its ratios by hand; the other targets of a question's workloads follow it, a row for each case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.bench_program import (
    APPEND,
    DISKCACHE,
    FUTURES,
    GATHERED,
    GET,
    LMDB,
    NOWAIT,
    POLL,
    QUEUE,
    READ,
    SELECT,
    SEND_RESULT,
    SQLITE,
    THREADED,
)


class Place(NamedTuple):
    """Identifies a ratio: the workload, parts of the title of its case, and the two contestants."""

    workload: str
    case: str
    of: str
    to: str


class Table(NamedTuple):
    """A heading and rows, each with a name and its ratios."""

    heading: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Place]]]


def _over(workload: str, cases: Sequence[str], of: str, to: str) -> list[Place]:
    return [Place(workload, case, of, to) for case in cases]


VALUES = ("100-byte values", "1000-byte values")
WAYS = ("in one piece", "in steps of 16 KiB")
FILES = tuple(f"written {way}, {values}" for way in WAYS for values in VALUES)
PLAIN = tuple(f"Decode, {values}, none" for values in VALUES)
CODECS = ("lz4", "zstd", "snappy", "gzip")
THREADS = tuple(f"by threads, 100-byte values, {codec}" for codec in ("none", *CODECS))
APPENDS = tuple(f"values of {size} bytes" for size in (100, 1000))
SPARK = ("100-byte values", "1024-byte values")
JAVA, RUST = "Java, kafka-clients", "Rust, krabka-protocol"
AIOKAFKA, CEILING = "aiokafka, four fields read", "ready-made Arrow batches"
BY_HAND = "mapInArrow with aiokafka"
LOG, CORE = "kstore Log", "kstore core"
FORMS = (("copied", "copies"), ("views", "views"))

SCAN = Table(
    ("`Log.to_arrow_batches` from a file", *(f"{way}, {size} bytes" for way in WAYS for size in (100, 1000))),
    [
        *(
            (f"{form} / pread and CRC in C, the bound", _over("scan", FILES, f"{LOG}, {form}", "pread and CRC in C"))
            for form, _ in FORMS
        ),
        *(
            (
                f"{form} / a C program that fills the same columns",
                _over("scan", FILES, f"{LOG}, {form}", f"limit.c from the file, {form}"),
            )
            for form, _ in FORMS
        ),
        *(
            (f"{form} / aiokafka's compiled reader", _over("scan", FILES, f"{LOG}, {form}", "aiokafka from the file"))
            for form, _ in FORMS
        ),
        *(
            (f"{form} / {name}, {mode}", _over("scan", FILES, f"{LOG}, {form}", f"{language}, file {mode}"))
            for name, language in (("Kafka's Java client", JAVA), ("Rust's krabka-protocol", RUST))
            for form, mode in FORMS
        ),
    ],
)
COMPRESSED = Table(
    ("from a file written in steps, 100-byte values, copied", *CODECS),
    [
        (
            "`Log.to_arrow_batches` / aiokafka's compiled reader",
            [Place("scan", f"values, {codec}", f"{LOG}, copied", "aiokafka from the file") for codec in CODECS],
        ),
        (
            "the same / Kafka's Java client",
            [Place("scan", f"values, {codec}", f"{LOG}, copied", f"{JAVA}, file copies") for codec in CODECS],
        ),
        (
            "the core over memory / the codec's package alone, then the uncompressed decode",
            [
                Place(
                    "decode", f"values, {codec}", f"{CORE}, copied", "codec package alone, then the uncompressed decode"
                )
                for codec in CODECS
            ],
        ),
    ],
)
MEMORY = Table(
    ("the compiled core over memory, a 64 MiB segment of 16 KiB batches", *VALUES),
    [
        *(
            (f"{form} / aiokafka's compiled reader", _over("decode", PLAIN, f"{CORE}, {form}", AIOKAFKA))
            for form, _ in FORMS
        ),
        *(
            (
                f"{form} / a C program without safety checks",
                _over("decode", PLAIN, f"{CORE}, {form}", f"limit.c, {form}"),
            )
            for form, _ in FORMS
        ),
        *(
            (f"{form} / {name}, {mode}", _over("decode", PLAIN, f"{CORE}, {form}", f"{language}, {mode}"))
            for name, language in (("Kafka's Java client", JAVA), ("Rust's krabka-protocol", RUST))
            for form, mode in FORMS
        ),
    ],
)
TWO = Table(
    ("of one thread, 100-byte values", "none", *CODECS),
    [
        (name, _over("read", THREADS, of, "kstore Log, one thread"))
        for name, of in (
            ("two threads of one scan, rows in order", "kstore Log, two threads"),
            ("two threads, a half each", "kstore Log, two threads, a half each, no order between them"),
            ("two processes, a half each", "kstore Log, two processes, a half each"),
        )
    ],
)
RECORDS = Table(
    ("one record at a time, from Python", *VALUES),
    [
        (
            "`Record` objects by iteration, key and value touched / aiokafka's compiled reader",
            _over(
                "records", [f"magic 2, {size}" for size in VALUES], "kstore, key and value", "aiokafka, key and value"
            ),
        ),
        (
            "`MemoryRecordsBuilder.append` / aiokafka's compiled builder",
            _over("builder", VALUES, "kstore, append", "aiokafka, append"),
        ),
        (
            "`pack_columns`, from columns / the same",
            _over("builder", VALUES, "kstore, pack_columns", "aiokafka, append"),
        ),
    ],
)
WRITING = Table(
    ("writing, plain batches of 16 KiB", *VALUES),
    [
        (
            "`WritableLog.append_as_follower` / `os.write` of the same bytes",
            _over("append", APPENDS, "kstore, append_as_follower, written", "os.write"),
        ),
        (
            "`WritableLog.append`, each record checked / the same",
            _over("append", APPENDS, "kstore, append as leader, written", "os.write"),
        ),
        (
            "the same, flushed each MiB / `os.write` with fdatasync each MiB",
            _over("append", APPENDS, "kstore, append as leader, flush each MiB", "os.write, fdatasync each MiB"),
        ),
        (
            "`WritableLog.append` / Kafka's `UnifiedLog.appendAsLeader`",
            _over("append", APPENDS, "kstore, append as leader, written", "Java, UnifiedLog, leader"),
        ),
        (
            "the same / the CRC and the write of each batch in C, the bound",
            _over("append", APPENDS, "kstore, append as leader, written", "limit.c, CRC and write"),
        ),
        (
            "that bound / Kafka's `UnifiedLog.appendAsLeader`",
            _over("append", APPENDS, "limit.c, CRC and write", "Java, UnifiedLog, leader"),
        ),
    ],
)
SENDING = "Producer, values of 100 bytes"
SEND, COLUMNS = "Producer.send, written", "Producer.send_columns, written"
PRODUCING = Table(
    ("through to a store's files, 100-byte values", "ratio"),
    [
        (name, [Place("send", SENDING, of, to)])
        for name, of, to in (
            (
                "`Producer.send` / confluent-kafka's `produce()` before its mock cluster, its defaults",
                SEND,
                "confluent-kafka, mock cluster, its defaults",
            ),
            ("the same / with kstore's settings", SEND, "confluent-kafka, mock cluster, set as kstore"),
            ("`send` to any partition / to one", "Producer.send without key and partition, written", SEND),
            ("`send_columns` / `send`", COLUMNS, SEND),
            ("`send_columns` / `os.write` of the same batches", COLUMNS, "os.write of the same batches"),
        )
    ],
)
PROGRAM = Table(
    ("inside a program, 100-byte values", "ratio"),
    [
        (name, [Place("program", case, of, to)])
        for name, case, of, to in (
            ("`send().result()` / `log.append`, one at a time", "written", SEND_RESULT, APPEND),
            ("`log.append` / sqlite3's INSERT, each committed, no sync", "written", APPEND, SQLITE),
            ("the same / lmdb's put, each in a transaction, no sync", "written", APPEND, LMDB),
            ("the same / diskcache's set, no sync", "written", APPEND, DISKCACHE),
            ("the same / persist-queue's put", "written", APPEND, QUEUE),
            ("`send_nowait` of `kstore.aio` / `Producer.send`", "sent together", NOWAIT, THREADED),
            ("gathered sends of `kstore.aio` / bare futures of asyncio", "gathered in", GATHERED, FUTURES),
            ("`log.get(offset)` / sqlite3's SELECT by rowid", "by its offset", GET, SELECT),
            ("`Consumer.poll` / `log.read`", "as objects", POLL, READ),
        )
    ],
)
SPARK_TABLE = Table(
    ("Spark, local[2]", "100-byte values", "1 KiB values"),
    [
        (name, [Place("spark", f"{size}, ", of, to)._replace(case=f"{size}|{query}") for size in SPARK])
        for name, query, of, to in (
            (
                "all columns / ready-made Arrow batches, the ceiling of a Python source",
                "all columns",
                "kstore",
                CEILING,
            ),
            ("all columns / thirty lines of mapInArrow with aiokafka", "all columns", "kstore", BY_HAND),
            ("value only / the ceiling", "value only", "kstore", CEILING),
            ("value only / mapInArrow written for it", "value only", "kstore", f"{BY_HAND}, written for value only"),
            ("count / the ceiling", "count", "kstore", CEILING),
            ("count / mapInArrow written for it", "count", "kstore", f"{BY_HAND}, written for count"),
        )
    ],
)
UDFS = Table(
    ("UDFs in Spark, local[2]", *VALUES),
    [
        (
            f"`{function}` / an arrow_udf with aiokafka that builds flat lists",
            [
                Place("udfs", f"{name}, {size}", f"kstore, {function}", f"aiokafka by flat lists, {name}")
                for size in VALUES
            ],
        )
        for name, function in (("unpack", "unpack_batches"), ("pack", "pack_batch"))
    ],
)


class Question(NamedTuple):
    """A question of a user, the tables that answer it, and the workloads whose other targets do too."""

    asked: str
    tables: Sequence[Table]
    workloads: Sequence[str]


QUESTIONS = (
    Question("How fast is a file read into columns?", (SCAN,), ("scan", "crc", "legacy")),
    Question("How near is the core to C, and with a codec?", (MEMORY, COMPRESSED), ("decode", "memory")),
    Question("What do two threads bring?", (TWO,), ("read",)),
    Question("One record at a time?", (RECORDS,), ("records", "builder")),
    Question("What do values as columns cost?", (), ("values", "spark_values")),
    Question("What does a write cost, and a flush?", (WRITING,), ("append",)),
    Question("How fast are lookups, recovery and compaction?", (), ("index", "compaction", "open", "store")),
    Question("How fast is a producer?", (PRODUCING,), ("producer", "send")),
    Question("What does it cost inside a program?", (PROGRAM,), ("program", "follow")),
    Question("And in Spark?", (SPARK_TABLE, UDFS), ("spark", "udfs", "pipeline")),
    Question("How long do exports and tiers take?", (), ("export", "tier")),
    Question("The command, and the server?", (), ("command", "serve", "wire")),
)


def places_of(tables: Sequence[Table]) -> list[Place]:
    """Return every ratio of some tables."""
    return [place for table in tables for _, found in table.rows for place in found]
