"""Goal: the commands that read take a tier, and say so where records lie in one that was not given.
Method: a root whose log begins in a tier, through each command, against what the library reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore import open_log
from kstore.tier.keys import ENCRYPTION_BYTES
from tests.cli.runner import Runner, runner
from tests.making.batches import batch, batches, flip_bit, write_root
from tests.making.tiers import FINISHED, STARTED, Tier, key, write_events

SEGMENTS = [batches(start, 5, records_per_batch=2, value_bytes=60) for start in range(0, 30, 10)]


class Given:
    """A root and its tier of encrypted segments, as arguments of a command."""

    def __init__(self, path: Path) -> None:
        self.root = path / "root"
        self.tier = Tier(path=path / "tier", key=key())
        made = [self.tier.upload(segment) for segment in SEGMENTS[:2]]
        self.logs = [one.path(".log") for one in made]
        write_root(self.root, {"t-0": SEGMENTS[2:]}, log_start_offsets={"t-0": 0})
        write_events(self.root, [self.tier.event(one, state) for one in made for state in (STARTED, FINISHED)])
        self.options = ("--tier", str(self.tier.path), "--tier-key", f"key1={key().write(path)}")


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return Given(tmp_path)


def test_ls_shows_the_whole_log(given: Given, kstore: Runner) -> None:
    (shown,) = kstore("ls", given.root, "--topic", "t", "--json", *given.options).objects()
    assert (shown["log_start_offset"], shown["log_end_offset"], shown["segments"]) == (0, 30, 3)


def test_ls_and_cat_say_what_is_in_a_tier_that_is_not_given(given: Given, kstore: Runner) -> None:
    for command in (("ls",), ("cat", "--from", "5", "--limit", "1")):
        run = kstore(command[0], given.root, "--topic", "t", *command[1:])
        assert run.status == 0
        assert "offsets 0 to 19 of t-0 are in tiered storage" in run.err
    assert "tiered" not in kstore("cat", given.root, "--topic", "t", "--from", "25").err
    assert "tiered" not in kstore("ls", given.root, "--topic", "t", *given.options).err


def test_cat_prints_records_of_the_tier(given: Given, kstore: Runner) -> None:
    run = kstore("cat", given.root, "--topic", "t", "--from", "5", "--to", "25", "--json", *given.options)
    assert [record["offset"] for record in run.objects()] == list(range(5, 25))


def test_stat_and_offsets_take_a_tier(given: Given, kstore: Runner) -> None:
    (shown, *_) = kstore("stat", given.root, "--topic", "t", "--json", *given.options).objects()
    assert shown["records"] == 30
    assert kstore("offsets", given.root, "--topic", "t", "--time", "earliest", *given.options).status == 0


def test_a_tier_alone_is_given_as_directory_and_as_tier(given: Given, kstore: Runner) -> None:
    (shown,) = kstore("ls", given.tier.path, "--json", *given.options).objects()
    assert (shown["log_start_offset"], shown["log_end_offset"]) == (0, 20)


def test_verify_finds_damage_and_orphans_of_the_tier(given: Given, kstore: Runner) -> None:
    assert kstore("verify", given.root, "--topic", "t", *given.options).status == 0
    half = given.tier.upload(SEGMENTS[0], is_finished=False)
    run = kstore("verify", given.root, "--topic", "t", *given.options)
    assert run.status == 0
    assert f"{half.path('.log').stat().st_size} bytes of {half.stem} are of no use" in run.err
    flip_bit(given.logs[0], 300, bit=0)
    run = kstore("verify", given.root, "--topic", "t", *given.options)
    assert run.status == 1
    assert "chunk 1" in run.out


def test_an_export_of_format_kstore_is_the_whole_log(given: Given, kstore: Runner, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert kstore("export", given.root, target, "--format", "kstore", "--topic", "t", *given.options).status == 0
    with open_log(target / "t-0") as log:
        assert [record.offset for record in log] == list(range(30))
    assert kstore("verify", target).status == 0


def test_keys_are_named_by_their_ids(given: Given, kstore: Runner) -> None:
    tier = given.options[:2]
    run = kstore("cat", given.root, "--topic", "t", *tier)
    assert run.status != 0
    assert "'key1'" in run.err
    assert kstore("cat", given.root, *tier, "--tier-key", "key1").status == 2
    assert kstore("cat", given.root, *given.options[2:]).status == 2


def test_the_memory_for_an_encrypted_chunk_is_an_option_of_the_commands_that_read(
    given: Given, kstore: Runner, tmp_path: Path
) -> None:
    commands = {
        "ls": (given.root, "--exact", "--topic", "t"),
        "cat": (given.root, "--topic", "t"),
        "stat": (given.root, "--topic", "t"),
        "verify": (given.root, "--topic", "t"),
        "offsets": (given.root, "--topic", "t", "--time", "earliest"),
        "export": (given.root, tmp_path / "out", "--format", "kstore", "--topic", "t"),
    }
    chunk_bytes = given.tier.chunk_bytes + ENCRYPTION_BYTES
    for name in ("cat", "export"):
        run = kstore(name, *commands[name], *given.options, "--max-decrypted-bytes", chunk_bytes - 1)
        assert run.status != 0
        assert f"at most {chunk_bytes - 1} are decrypted (max_decrypted_bytes of LogConfig)" in run.err
    for name, arguments in commands.items():
        assert kstore(name, *arguments, *given.options, "--max-decrypted-bytes", chunk_bytes).status == 0, name
        run = kstore(name, *arguments, "--max-decrypted-bytes", chunk_bytes)
        assert run.status == 2
        assert "--max-decrypted-bytes is of no use without --tier" in run.err
    assert kstore("cat", *commands["cat"], *given.options, "--max-decrypted-bytes", 0).status == 2


def test_a_tier_alone_with_several_lineages_is_read_by_the_epoch_that_is_given(
    kstore: Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier(path=tmp_path / "tier")
    for epoch, values in ((1, 4), (2, 2)):
        segment = [batch(offset, 1, partition_leader_epoch=epoch) for offset in range(values)]
        tier.upload(segment, ((epoch, 0),))
    given = (tier.path, "--topic", "t", "--tier", tier.path)
    run = kstore("ls", *given, "--json")
    assert [shown["log_end_offset"] for shown in run.objects()] == [2]
    assert "several lineages; that of leader epoch 2 is read, and with tier_epoch that of 1" in caplog.text
    caplog.clear()
    run = kstore("ls", *given, "--json", "--tier-epoch", 1)
    assert [shown["log_end_offset"] for shown in run.objects()] == [4]
    assert "lineage" not in caplog.text
    for command in (("cat",), ("stat",), ("offsets", "--time", "latest"), ("verify",)):
        assert kstore(command[0], *given, *command[1:], "--tier-epoch", 1).status == 0
    assert (
        kstore("export", tier.path, tmp_path / "out", "--format", "kstore", *given[3:], "--tier-epoch", 1).status == 0
    )
    assert len(kstore("cat", tmp_path / "out", "--json").objects()) == 4
    run = kstore("cat", *given, "--tier-epoch", 7)
    assert run.status != 0
    assert "tier_epoch 7" in run.err
    assert kstore("cat", tier.path, "--tier-epoch", 1).status == 2
