"""Goal: a partition that cannot be read, or that vanishes, is one line; every command serves the others as before.
Method: the operating system with one directory of a root that fails, or that is deleted after the root was listed."""

from __future__ import annotations

import errno
import shutil

import pytest

import kstore as library
from kstore.env import LocalEnv
from kstore.errors import LogNotFoundError, StorageError
from tests.cli.runner import runner
from tests.making.batches import batches, write_root

ERRNOS = {"EIO": 1, "EACCES": 2, "ENOTDIR": 2, "ELOOP": 2}
READERS = {
    "ls": (),
    "cat": (),
    "stat": (),
    "verify": (),
    "offsets": ("--time", "earliest"),
    "recover": ("--dry-run",),
    "retention": ("--dry-run", "--retention-ms", "1"),
    "dump": (),
}
WRITERS = {"recover": (), "retention": ("--retention-ms", "1"), "compact": ()}
# These two remove only from topics that are named, or that the root says something of.
NAMED = dict.fromkeys(("compact", "retention"), ("--topic", "t", "--topic", "u", "--topic", "v"))
FAILING = ("listdir", "stat", "open_read", "open_write", "is_directory")
BOTH = [*READERS.items(), *WRITERS.items()]


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "logs", {f"{name}-0": [batches(0, 3), batches(60, 2)] for name in "tuv"})


def break_partition(monkeypatch, path, number):
    """Let every call on a directory fail, and on what is in it; return the paths that were asked for."""
    asked = []

    def failing(name, call):
        def fail(self, at, *args, **kwargs):
            if str(at) == str(path) or str(at).startswith(f"{path}/"):
                asked.append(str(at))
                raise StorageError(f"cannot {name} {at}: broken", path=str(at), errno=number)
            return call(self, at, *args, **kwargs)

        return fail

    for name in FAILING:
        monkeypatch.setattr(LocalEnv, name, failing(name, getattr(LocalEnv, name)))
    return asked


@pytest.mark.parametrize(
    ("command", "options", "name"),
    [*((*one, "EIO") for one in BOTH), *(("ls", (), name) for name in ERRNOS if name != "EIO")],
)
def test_partition_that_cannot_be_read_is_one_line_and_the_others_are_served(
    kstore, root, monkeypatch, command, options, name
):
    expected = kstore(command, root, *options, "--topic", "t", "--topic", "v").out
    break_partition(monkeypatch, root / "u-0", getattr(errno, name))
    run = kstore(command, root, *options, *NAMED.get(command, ()))
    assert run.status == ERRNOS[name]
    assert len([line for line in run.err.splitlines() if "u-0" in line]) == 1
    if (command, options) in READERS.items() and command != "dump":
        assert run.out.split() == expected.split()
    elif command == "dump":
        assert "v-0/00000000000000000060.log" in run.out
        assert "u-0/" not in run.out


@pytest.mark.parametrize(("command", "options"), BOTH)
def test_partition_that_is_not_selected_is_not_touched(kstore, root, monkeypatch, command, options):
    asked = break_partition(monkeypatch, root / "u-0", errno.EIO)
    run = kstore(command, root, *options, "--topic", "t", "--partition", "0")
    assert run.status == 0
    # Once the root is written, its checkpoints keep the partitions that are there.
    assert asked == [] or command in ("recover", "compact", "retention")


def test_exports_and_scans_of_others_do_not_touch_it(kstore, root, monkeypatch, tmp_path):
    break_partition(monkeypatch, root / "u-0", errno.EIO)
    assert kstore("export", root, tmp_path / "out", "--topic", "t").status == 0
    assert library.scan(root, topics=["t"]).to_table().num_rows == 5
    assert library.verify(root, topics="t").is_unharmed
    with pytest.raises(StorageError, match="u-0"):
        library.scan(root).to_table()
    run = kstore("export", root, tmp_path / "all")
    assert (run.status, "u-0" in run.err) == (1, True), "an export is one commit of all that is selected"


def test_store_with_an_unreadable_partition_serves_the_others(root, monkeypatch):
    (root / ".kafka_cleanshutdown").unlink()
    break_partition(monkeypatch, root / "u-0", errno.EACCES)
    with library.open_store(root) as store:
        assert [one.topic for one in store.partitions] == ["t", "u", "v"]
        assert len(list(store.log("t").read())) == 5
        with pytest.raises(StorageError, match="u-0"):
            store.log("u")
    with library.open_store(root, "a") as store:
        store.log("v").append([library.Record(offset=0, timestamp_ms=1, value=b"x")])
        with pytest.raises(StorageError, match="u-0"):
            store.log("u")
    assert not (root / ".kafka_cleanshutdown").exists(), "one of its logs was not recovered"


def test_recovery_of_a_root_names_the_partition_that_fails_and_leaves_no_marker(root, monkeypatch):
    break_partition(monkeypatch, root / "u-0", errno.EIO)
    t, u, v = library.recover(root)
    assert (t.report is None, u.report, v.report is None) == (False, None, False)
    assert isinstance(u.refusal, StorageError)
    assert not (root / ".kafka_cleanshutdown").exists()


def test_a_link_that_leads_nowhere_is_not_all_there_is(kstore, root):
    (root / "w-0").symlink_to(root / "w-0")
    run = kstore("ls", root, "--json")
    assert [one["topic"] for one in run.objects()] == ["t", "u", "v"]
    assert "w-0" in run.err


@pytest.fixture
def vanishing(root, monkeypatch):
    """A root of which u-0 is deleted by another process once the partition before it is listed again."""
    listed = []
    listdir = LocalEnv.listdir

    def delete_then_list(self, path):
        listed.append(str(path))
        if listed.count(str(root / "t-0")) == 2:
            shutil.rmtree(root / "u-0", ignore_errors=True)
        return listdir(self, path)

    monkeypatch.setattr(LocalEnv, "listdir", delete_then_list)
    return root


@pytest.mark.parametrize(("command", "options"), READERS.items())
def test_partition_that_is_deleted_after_the_listing_is_passed_over(kstore, vanishing, command, options):
    run = kstore(command, vanishing, *options, *NAMED.get(command, ()))
    assert run.status == 0
    assert not (vanishing / "u-0").exists()
    assert "u-0 was deleted" in run.err
    assert "u-0" not in run.out


@pytest.mark.parametrize(("command", "options"), WRITERS.items())
def test_writers_pass_over_a_partition_that_is_deleted_after_the_listing(kstore, vanishing, command, options):
    run = kstore(command, vanishing, *options, *NAMED.get(command, ()))
    assert run.status == 0, run.err
    assert not (vanishing / "u-0").exists(), "it is not made again"


def test_log_of_a_partition_that_another_process_deleted_is_not_found(root):
    with library.open_store(root) as store:
        shutil.rmtree(root / "t-0")
        with pytest.raises(LogNotFoundError, match="t-0"):
            store.log("t")
        (root / "u-0").rename(root / "elsewhere")
        (root / "u-0").write_bytes(b"a file in its place")
        with pytest.raises(LogNotFoundError, match="u-0"):
            store.log("u")
        assert len(list(store.log("v").read())) == 5
