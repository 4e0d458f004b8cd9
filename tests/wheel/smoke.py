"""Use an installed kstore, and each of its extras a little: tests, builds of wheels and `make wheels-here` run it.

python tests/wheel/smoke.py PARTITION_DIR [--extras] [--install] [--need EXTRA ...]

Reads the partition, compares it with the manifest beside it and prints what it found as one JSON line. --extras: then
uses every extra and prints a line for each: "EXTRA: ok", or "EXTRA: skipped, WHY" where its packages are missing.
--install: gets those by pip first, as wheels only. Exit status: 1 if something differs, or a --need was skipped.
The script imports only kstore and the standard library, so that any Python can run it outside of the tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import kstore
from kstore import _core

# What an extra's use needs here besides the extra: the catalog of an Iceberg table.
BESIDES = {"iceberg": ("sqlalchemy",)}
# How pip says that a package has no wheel that this Python takes.
NO_WHEEL = re.compile(r"No matching distribution found for ([\w.-]+)")
# Within which the use of an extra has to end: far more than the slowest one takes under emulation.
MOST_SECONDS = 600
RECORDS = [kstore.Record(key=b"k%d" % (n % 3), value=b"\x08" + bytes([n])) for n in range(100)]


def read(directory: Path) -> dict[str, object]:
    """Read a partition record by record."""
    digest = hashlib.sha256()
    records = 0
    with kstore.open_log(directory) as log:
        for record in log.read():
            value = record.value
            digest.update(b"null" if value is None else hashlib.sha256(value).hexdigest().encode())
            records += 1
        return {"records": records, "log_end_offset": log.log_end_offset, "values_sha256": digest.hexdigest()}


def differs(directory: Path) -> bool:
    """Print what a partition holds; return whether its manifest says otherwise."""
    found = read(directory)
    threads = {"is_locked": getattr(sys, "_is_gil_enabled", lambda: True)()}
    print(json.dumps({**found, **threads, "package": str(Path(_core.__file__).parent)}))
    manifest = json.loads((directory.resolve().parent / "MANIFEST.json").read_text())
    said = next(entry for entry in manifest["partitions"] if directory.name.endswith(f"-{entry['partition']}"))
    return any(value != said[name] for name, value in found.items())


def written(scratch: Path) -> Path:
    """Write a root with 100 records of a topic, and read them back."""
    root = scratch / "root"
    with kstore.open_store(root, "a") as store:
        store.create_topic("t")
        with kstore.Producer(store) as producer:
            for record in RECORDS:
                producer.send("t", key=record.key, value=record.value)
    with kstore.open_log(root / "t-0") as log:
        assert [(one.key, one.value) for one in log.read()] == [(one.key, one.value) for one in RECORDS]
    return root


def use_arrow(root: Path, scratch: Path) -> None:
    table = kstore.scan(root, topics="t", strings=["key"]).to_table()
    assert table["key"].to_pylist() == [record.key.decode() for record in RECORDS]
    summary = kstore.export(root, scratch / "parquet")
    assert summary.record_count == len(RECORDS)


def use_fsspec(root: Path, scratch: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").put(str(root / "t-0"), "/root/t-0", recursive=True)
    with kstore.open_log("memory://root/t-0") as log:
        assert len(list(log.read())) == len(RECORDS)


def use_objects(root: Path, scratch: Path) -> None:
    from obstore import get, put
    from obstore.store import MemoryStore

    from kstore.env.objects.store import ObjectStore

    store = MemoryStore()
    put(store, "k", b"content")
    assert bytes(get(store, "k").bytes()) == b"content"
    assert ObjectStore("s3://bucket/place", {"region": "eu-west-1", "skip_signature": "true"}) is not None


def use_spark(root: Path, scratch: Path) -> None:
    from kstore.spark.source import KStoreDataSource

    source = KStoreDataSource({"path": str(root), "subscribe": "t"})
    reader = source.reader(source.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [record.value for record in RECORDS]


def use_delta(root: Path, scratch: Path) -> None:
    from deltalake import DeltaTable

    kstore.export(root, table=f"delta:{scratch / 'delta'}")
    assert DeltaTable(str(scratch / "delta")).to_pyarrow_table().num_rows == len(RECORDS)


def use_iceberg(root: Path, scratch: Path) -> None:
    (scratch / "warehouse").mkdir()
    catalog = {
        "TYPE": "sql",
        "URI": f"sqlite:///{scratch}/catalog.db",
        "WAREHOUSE": f"file://{scratch}/warehouse",
    }
    os.environ.update({f"PYICEBERG_CATALOG__LOCAL__{name}": value for name, value in catalog.items()})
    from pyiceberg.catalog import load_catalog

    kstore.export(root, table="iceberg:local.kafka.t")
    assert load_catalog("local").load_table("kafka.t").scan().to_arrow().num_rows == len(RECORDS)


def use_protobuf(root: Path, scratch: Path) -> None:
    schema = scratch / "m.proto"
    schema.write_text('syntax = "proto3";\nmessage M { uint32 n = 1; }\n')
    table = kstore.scan(root, topics="t", value=kstore.ValueFormat("protobuf", schema=schema)).to_table()
    assert [value["n"] for value in table["value"].to_pylist()] == list(range(len(RECORDS)))


def use_cli(root: Path, scratch: Path) -> None:
    command = [sys.executable, "-m", "kstore", "ls", str(root)]
    listed = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True)
    assert re.search(r"^t +0 +0 +100 ", listed.stdout, re.MULTILINE), listed.stdout


def use_replay(root: Path, scratch: Path) -> None:
    from kstore.testing import KafkaServer

    with KafkaServer() as kafka:
        summary = kstore.replay(root, kafka.bootstrap_servers, create_topics=True)
        assert summary.is_complete
        assert len(kafka.records("t")) == len(RECORDS)


def use_report(root: Path, scratch: Path) -> None:
    kstore.report(root).save(scratch / "report.html")
    assert "<svg" in (scratch / "report.html").read_text(encoding="utf-8")


def use_tiered(root: Path, scratch: Path) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from kstore.tier.keys import Sealed

    key, iv = bytes(32), bytes(12)
    assert Sealed(key, b"aad").open(iv + AESGCM(key).encrypt(iv, b"content", b"aad")) == b"content"


def use_progress(root: Path, scratch: Path) -> None:
    assert not kstore.verify(root, progress=True).damage


def use_metrics(root: Path, scratch: Path) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    with kstore.open_store(root, "a") as store:
        registry.register(kstore.StoreCollector(store))
        assert b"kstore" in generate_latest(registry)


USES: dict[str, Callable[[Path, Path], None]] = {
    name.removeprefix("use_"): use for name, use in list(globals().items()) if name.startswith("use_")
}


def packages_of(extra: str) -> Iterator[str]:
    """Yield the requirements of an extra of the installed kstore."""
    for line in metadata.requires("kstore") or ():
        requirement, _, marker = line.partition(";")
        if re.search(rf"""extra == ["']{extra}["']""", marker):
            yield requirement.strip()
    yield from BESIDES.get(extra, ())


def missing_of(extra: str) -> list[str]:
    """Return the requirements of an extra that are not installed in any version."""
    installed = {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower() for one in metadata.distributions()}
    named = {line: re.split(r"[^\w.-]", line)[0] for line in packages_of(extra)}
    return [line for line, name in named.items() if re.sub(r"[-_.]+", "-", name).lower() not in installed]


def installed(missing: list[str]) -> str | None:
    """Install packages from wheels; return the one that has none for this Python, None if all could be had.

    Raises: RuntimeError if pip fails for another reason.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *missing]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lacking = NO_WHEEL.search(done.stderr)
    if lacking is None:
        raise RuntimeError(f"pip could not install {', '.join(missing)}:\n{done.stderr}")
    return lacking[1]


def outcome_of(extra: str, root: Path, *, may_install: bool) -> str:
    """Use an extra; return "ok", or why it was skipped.

    Raises: subprocess.SubprocessError if the use fails, or does not end.
    """
    missing = missing_of(extra)
    if missing and not may_install:
        return f"skipped, {', '.join(missing)} not installed"
    lacking = installed(missing) if missing else None
    if lacking is not None:
        return f"skipped, {lacking} has no wheel for this Python here"
    # In a process of its own: what one extra loads is not there for the next.
    subprocess.run([sys.executable, __file__, str(root), "--use", extra], check=True, timeout=MOST_SECONDS)
    return "ok"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--extras", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--need", action="append", default=[], choices=sorted(USES))
    parser.add_argument("--use", choices=sorted(USES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.use is not None:
        with tempfile.TemporaryDirectory() as scratch:
            USES[options.use](options.directory, Path(scratch))
        return 0
    faults = ["the partition is not what its manifest says"] if differs(options.directory) else []
    with tempfile.TemporaryDirectory() as scratch:
        root = written(Path(scratch))
        for extra in USES if options.extras else ():
            outcome = outcome_of(extra, root, may_install=options.install)
            print(f"{extra}: {outcome}", flush=True)
            if outcome != "ok" and extra in options.need:
                faults.append(f"{extra} was skipped")
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
