"""What every test shares: Hypothesis profiles, how tests are spread over workers, and common fixtures."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from kstore.store.store import WritableStore, open_store
from tests.making.in_memory import IN_MEMORY
from tests.making.installing import write_translator
from tests.making.record_files import DATA
from tests.making.source_tree import copy_sources
from tests.making.spark_home import spark_home

# a busy machine is no defect
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=30, derandomize=True, database=None, print_blob=True, **UNTIMED)
settings.register_profile("long", max_examples=1000, print_blob=True, **UNTIMED)
settings.load_profile("default")

# Files of a run lie in memory if it has room for twice what they take: half of a run on a disk is waiting for the disk.
# What a test wants to know of a disk it asks of a simulated one; TMPDIR or --basetemp names another place.
MOST_TEMPORARY_BYTES = 4 << 30

if "TMPDIR" not in os.environ and IN_MEMORY and shutil.disk_usage(IN_MEMORY).free >= 2 * MOST_TEMPORARY_BYTES:
    os.environ["TMPDIR"] = tempfile.tempdir = IN_MEMORY

# A shell lets its background jobs ignore SIGINT; tests interrupt this process, and commands that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Times are shown and exported in UTC: a test that holds only where the machine is in UTC holds by chance. Spark gives
# Python times in the zone of the driver, and pages show what it prints.
OTHER_ZONE, IN_UTC = "Asia/Kathmandu", ("tests/spark/", "tests/repo/", "tests/wheel/")

# Hundreds of processes import the same modules, and pytest rewrites those of the tests: each would compile them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests run many short queries: compiling their code twice, for speed, costs more than it saves.
SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = SHORT_JVM
if (home := spark_home()) is not None:
    os.environ["SPARK_HOME"] = str(home)

# What shares a fixture of the whole run: a Spark session, the core translated and built; or a cache, that of mypy.
GROUPS = {
    "tests/spark/": "spark",
    "tests/repo/test_packaging.py": "build",
    "tests/repo/test_snippets.py": "build",
    "tests/repo/test_sourcecode.py": "build",
    "tests/repo/test_typing.py": "build",
}

# Takes more than half a minute and shares nothing with another file.
LONG = ("tests/repo/test_bench_smoke.py", "tests/crash/", "tests/coordinator/group/")


def group_of(nodeid: str) -> str:
    """Return the group of a test: that of what it shares, else its file."""
    return next((group for place, group in GROUPS.items() if nodeid.startswith(place)), nodeid.partition("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    zone = "UTC" if item.nodeid.startswith(IN_UTC) else OTHER_ZONE
    if os.environ.get("TZ") != zone:
        os.environ["TZ"] = zone
        time.tzset()


class GroupScheduling(LoadScopeScheduling):
    """Keeps each group on one worker, so that what its tests share is made once; the groups go out in their order."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., Any]) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.fixture
def quiet_producer(caplog: pytest.LogCaptureFixture) -> None:
    """Leaves out what the producer logs of failures that are made."""
    caplog.set_level(logging.CRITICAL, logger="kstore.producer")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while a million objects that stay are made."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no tests of the long lane, a third of all, where they are left out: -m would drop them one by one."""
    is_long = isinstance(obj, FunctionType) and any(mark.name == "long" for mark in getattr(obj, "pytestmark", ()))
    return [] if is_long and "not long" in collector.config.option.markexpr.split(" and ") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what takes longest, so that no worker is left with it at the end."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: an address in a test's name differs from worker to worker")
    items.sort(key=lambda item: (group_of(item.nodeid) not in GROUPS.values(), not item.nodeid.startswith(LONG)))


def pytest_collection_finish() -> None:
    """Keep what was collected, a million objects, out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do the same with what the tests of a module have imported and kept."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    """Give it back, so that modules which look at the end for what is left find nothing."""
    gc.unfreeze()


class Translation(NamedTuple):
    """A copy of the sources with the C that Cython made of the core in it, what it printed on the way, and a directory
    for PYTHONPATH with which it makes the C of the same sources no more.
    """

    tree: Path
    log: str
    translator: Path


@pytest.fixture(scope="session")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Translation:
    """Made once for all that look at it or build of it; they run on one worker."""
    tree = copy_sources(tmp_path_factory.mktemp("core") / "tree")
    translator = write_translator(tmp_path_factory.mktemp("translator"))
    environment = {**os.environ, "PYTHONPATH": str(translator)}
    command = [sys.executable, "setup.py", "--quiet", "--name"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return Translation(tree, done.stdout + done.stderr, translator)


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """Where a file of records may be made."""
    return tmp_path / "00000000000000000100.log"


@pytest.fixture
def written_log(log_path: Path) -> Path:
    """A file of the batches of record_files."""
    log_path.write_bytes(DATA)
    return log_path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    """A Store for a producer: the topic "topic" of three partitions, and the states of transactions."""
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic("topic", partitions=3)
        opened.create_topic("__transaction_state", partitions=1)
        yield opened
