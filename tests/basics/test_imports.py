"""Goal: a program that only reads a log, or only opens a store, imports little: it starts in a fraction of a second.
Method: names of the modules that new processes have imported."""

from __future__ import annotations

import pytest

import kstore
from kstore import arrow, producer, record, spark, staging
from tests.making.importing import imported_by

# What takes long to import, or is needed for less than every program.
HEAVY = {
    *("hashlib", "hmac", "random", "secrets", "selectors", "socket"),
    *("numpy", "pyarrow", "asyncio", "concurrent.futures", "subprocess", "tempfile", "urllib.parse", "html", "difflib"),
    *(
        "kstore.arrow",
        "kstore.cli",
        "kstore.env.filesystems",
        "kstore.env.remote",
        "kstore.record.kraft",
        "kstore.values",
    ),
}
OF_WRITERS = {"secrets", "kstore.log.recovery.context", "kstore.log.write", "kstore.producer", "kstore.store.store"}
# What a reader needs at damage, to follow, for what it logs, for markers, for datetimes, or for what it is asked
# to decode or to search.
OF_FEW_READERS = {
    *("datetime", "json", "logging", "uuid", "kstore.log.damaged.framing", "kstore.log.files.lock"),
    *("kstore.log.files.transaction_index", "kstore.record.control", "kstore.record.search", "kstore.serializers"),
    *(f"kstore.log.following.{module}" for module in ("follower", "history", "tail")),
    "kstore.wire",
}
# Of a scan of bytes: formats of keys and values; pandas, for which pyarrow looks when it makes an array of a list.
OF_FEW_SCANS = {"pandas", "pyarrow.compute", "http.client", "kstore.values.formats", "kstore.values.typed"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("imports") / "root"
    with kstore.open_store(path, "a") as store:
        store.create_topic("t")
        store.log("t").append([kstore.Record(value=b"v")])
    return path


def test_reading_a_log_imports_no_writer_and_nothing_of_urls(root):
    code = f"import kstore\nwith kstore.open_log({str(root / 't-0')!r}) as log: assert len(list(log.read())) == 1"
    assert imported_by(code) & (HEAVY | OF_WRITERS | OF_FEW_READERS) == set()


def test_a_scan_imports_no_pandas_and_nothing_of_formats(root):
    code = f"import kstore\nassert kstore.scan({str(root)!r}).to_table().num_rows == 1"
    assert imported_by(code) & OF_FEW_SCANS == set()


def test_a_store_imports_no_producer_and_nothing_of_urls(root):
    work = "store.log('t').append([kstore.Record(value=b'w')])"
    code = f"import kstore\nwith kstore.open_store({str(root)!r}, 'a') as store: {work}"
    assert imported_by(code) & {*HEAVY, "kstore.producer"} == set()


def test_a_store_that_is_opened_imports_nothing_of_its_logs(root):
    code = f"import kstore\nstore = kstore.open_store({str(root)!r}, 'a')\nimport atexit\natexit.register(store.close)"
    of_logs = {"kstore.log.log", "kstore.log.write.writable_log", "kstore.log.segment.segment", "kstore.store.table"}
    assert imported_by(code) & of_logs == set()


def test_a_server_listens_before_it_imports_what_answers_requests(root):
    code = f"""
import atexit
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server, ServerLoop
ServerLoop.get_ready = lambda _: None
server = Server({str(root)!r}, config=ServerConfig(port=0)).start()
atexit.register(server.close)
"""
    answering = {"kstore.serve.apis", "kstore.wire.frames", "kstore.coordinator.group.coordinator", "kstore.log.log"}
    assert imported_by(code) & answering == set()


@pytest.mark.parametrize(
    "package", [kstore, arrow, producer, record, spark, staging], ids=lambda package: package.__name__
)
def test_names_of_a_package_are_those_of_its_modules(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name).__class__ is not None
        assert name in vars(package)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018
