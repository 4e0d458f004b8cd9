"""Goal: `kstore restore` says what it restored, how far it came, and why it refuses; its options reach the library.
Method: small roots, the command in this process, records compared; a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore import open_log, open_store
from kstore.errors import StorageError
from kstore.log.write.writable_log import WritableLog
from tests.cli.runner import Runner, runner
from tests.making.batches import batch, write_root


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """t-0 and t-1 with offsets 0..39 in batches of 10, u-0 with one batch."""
    parts = {name: [[batch(at, 10) for at in range(0, 40, 10)]] for name in ("t-0", "t-1")}
    return write_root(tmp_path / "source", {**parts, "u-0": [[batch(0, 5)]]})


def end_of(path: Path) -> int:
    with open_log(path) as log:
        return log.log_end_offset


def test_each_partition_is_an_object(kstore: Runner, source: Path, tmp_path: Path) -> None:
    run = kstore("restore", source, tmp_path / "new", "--topic", "t", "--to", "25", "--to", "t-1=30", "--json")
    assert run.status == 0
    first, second = run.objects()
    assert {name: first[name] for name in first if name != "size_in_bytes"} == {
        "topic": "t",
        "partition": 0,
        "source": str(source / "t-0"),
        "start_offset": 0,
        "end_offset": 25,
        "from_offset": 0,
        "record_count": 25,
        "asked_offset": 25,
        "is_cut": True,
        "open_transactions": [],
        "waited_from": None,
        "is_dry_run": False,
    }
    assert (second["end_offset"], second["is_cut"]) == (30, False)
    assert run.err == "kstore: the last batch of t-0 was rebuilt to end at 25\n"
    assert [end_of(tmp_path / "new" / name) for name in ("t-0", "t-1")] == [25, 30]


def test_times_and_names_are_those_given(kstore: Runner, source: Path, tmp_path: Path) -> None:
    until = ["--until", "2020-09-13T12:26:40.012Z", "--until", "t-1=1600000000003"]
    run = kstore("restore", source, tmp_path / "new", *until, "--rename", "t=copy", "--json")
    assert [(one["topic"], one["partition"], one["end_offset"]) for one in run.objects()] == [
        ("copy", 0, 12),
        ("copy", 1, 3),
        ("u", 0, 5),
    ]
    assert kstore("restore", source / "u-0", tmp_path / "new", "--topic-as", "w").status == 0
    with open_store(tmp_path / "new") as store:
        assert store.topics == ("copy", "u", "w")


def test_a_table_shows_where_each_partition_ends(kstore: Runner, source: Path, tmp_path: Path) -> None:
    run = kstore("restore", source, tmp_path / "new", "--topic", "u", "--to", "9")
    assert [line.split() for line in run.out.splitlines()] == [
        ["topic", "partition", "start", "end", "from", "records", "bytes"],
        ["u", "0", "0", "5", "0", "5", str((source / "u-0" / f"{0:020}.log").stat().st_size)],
    ]
    assert run.err == "kstore: u-0 ends at 5: the source has no batch from there to the end asked for\n"


def test_a_dry_run_creates_nothing(kstore: Runner, source: Path, tmp_path: Path) -> None:
    (shown, *_) = kstore("restore", source, tmp_path / "new", "--dry-run", "--json").objects()
    assert (shown["is_dry_run"], shown["record_count"]) == (True, 40)
    assert not (tmp_path / "new").exists()


def test_a_target_that_does_not_continue_is_wrong_use(kstore: Runner, source: Path, tmp_path: Path) -> None:
    assert kstore("restore", source, tmp_path / "new", "--to", "15").status == 0
    run = kstore("restore", source, tmp_path / "new", "--to", "30")
    assert (run.status, run.out) == (2, "")
    assert "it ends at offset 15, inside of the source's batch with offsets 10 to 19; nothing was changed" in run.err


def test_a_full_disk_shows_how_far_it_came_and_the_same_command_goes_on(
    kstore: Runner, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = WritableLog.append_as_follower

    def full(log: WritableLog, records: object, **options: object) -> object:
        if log.path.endswith("t-1"):
            raise StorageError("cannot write: No space left on device", path=log.path, errno=28)
        return append(log, records, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(WritableLog, "append_as_follower", full)
        run = kstore("restore", source, tmp_path / "new", "--json")
    assert run.status == 1
    assert [(one["topic"], one["partition"], one["end_offset"]) for one in run.objects()] == [("t", 0, 40), ("t", 1, 0)]
    assert run.err == (
        "kstore: cannot write: No space left on device; the same command goes on where each partition ends\n"
    )
    assert kstore("restore", source, tmp_path / "new").status == 0
    assert [end_of(tmp_path / "new" / name) for name in ("t-0", "t-1", "u-0")] == [40, 40, 5]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--to", "x"), "--to must be earliest, latest or an offset"),
        (("--to", "x-0=3"), "--to names partitions that are not restored: x-0"),
        (("--to", "nothing=3"), "--to must be a bound, or TOPIC-N=BOUND for one partition, got 'nothing=3'"),
        (("--to", "3", "--to", "4"), "--to is given 2 times"),
        (("--until", "soon"), "--until must be ms since the epoch, an ISO-8601 time"),
        (("--rename", "t"), "--rename must have the form OLD=NEW, got 't'"),
        (("--rename", "t=a", "--topic-as", "b"), "rename and topic_as contradict each other"),
        (("--topic", "missing"), "topics not found: missing"),
        (("--topic-as", "b"), "topic_as names one topic, and the source has 2: t, u"),
    ],
)
def test_wrong_options_are_named(
    kstore: Runner, source: Path, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    run = kstore("restore", source, tmp_path / "new", *arguments)
    assert run.status == 2
    assert reason in run.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["--rename", "t=a_b"], "'a_b' collides with 'a.b'"),
        (["--topic", "t", "--topic-as", "a_b"], "'a_b' collides with 'a.b'"),
        (["--rename", "t=c.d", "--rename", "u=c_d"], "'c.d' collides with 'c_d'"),
        (["--rename", "t=c", "--rename", "t=d"], "--rename gives t two names: c and d"),
    ],
)
def test_names_that_cannot_be_beside_each_other_are_refused(
    kstore: Runner, source: Path, tmp_path: Path, names: list[str], message: str, dry: tuple[str, ...]
) -> None:
    with open_store(tmp_path / "new", "a") as store:
        store.create_topic("a.b")
    run = kstore("restore", source, tmp_path / "new", *names, *dry)
    assert (run.status, run.out) == (2, "")
    assert message in run.err
    with open_store(tmp_path / "new") as store:
        assert store.topics == ("a.b",)


def test_a_topic_that_is_there_is_continued_beside_one_that_it_collides_with(
    kstore: Runner, source: Path, tmp_path: Path
) -> None:
    write_root(tmp_path / "new", {"a.b-0": [[batch(0, 10)]], "a_b-0": [[batch(0, 10)]]})
    assert kstore("restore", source / "t-0", tmp_path / "new", "--topic-as", "a_b").status == 0
    assert end_of(tmp_path / "new" / "a_b-0") == 40
