"""Goal: the state of a cluster is that of its latest snapshot and the log after it, at any offset that the files have.
Method: metadata written record by record; states compared with those of the log alone."""

from __future__ import annotations

import uuid

import pytest

from kstore.env import DEFAULT_ENV
from kstore.errors import CorruptCheckpointError, OffsetError
from kstore.log.files.names import find_partition
from kstore.store.metadata.replay import QuorumState, read_metadata, read_quorum_state, read_snapshot
from tests.making.cluster import ABORT, BEGIN, END, metadata, topic, write_metadata, write_snapshot

A, B, C = (topic(name, uuid.UUID(int=number)) for number, name in enumerate("abc", 1))
BEGINS, ENDS, ABORTS = metadata(BEGIN), metadata(END), metadata(ABORT)


def names(directory, at=None):
    return list(read_metadata(find_partition(str(directory)), at=at).image.topics_by_name())


def test_the_state_at_an_offset_has_the_records_below_it(tmp_path):
    directory = write_metadata(tmp_path, [A, B, C])
    found = [names(directory, at) for at in (0, 1, 2, 3, None)]
    assert found == [[], ["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]


def test_the_latest_snapshot_that_does_not_go_beyond_the_offset_counts(tmp_path):
    directory = write_metadata(tmp_path, [A, B, C])
    write_snapshot(directory, [topic("of the first", uuid.UUID(int=8))], end_offset=1)
    write_snapshot(directory, [topic("of the second", uuid.UUID(int=9))], end_offset=2)
    assert names(directory) == ["c", "of the second"]
    assert names(directory, 2) == ["of the second"]
    assert names(directory, 1) == ["of the first"]
    assert names(directory, 0) == []


def test_an_offset_that_the_files_do_not_have_is_refused(tmp_path):
    directory = write_metadata(tmp_path, [C], base_offset=2)
    write_snapshot(directory, [A, B], end_offset=2)
    with pytest.raises(OffsetError, match="ends at offset 3, got 4"):
        names(directory, 4)
    with pytest.raises(OffsetError, match=r"no snapshot .* reaches offset 1, and the log starts at 2"):
        names(directory, 1)
    assert names(directory, 2) == ["a", "b"]


def test_a_log_without_the_snapshot_before_it_is_damage(tmp_path):
    directory = write_metadata(tmp_path, [C], base_offset=2)
    with pytest.raises(CorruptCheckpointError, match="no snapshot reaches it"):
        names(directory)


def test_a_snapshot_without_its_footer_is_damage(tmp_path):
    directory = write_metadata(tmp_path, [A, B])
    write_snapshot(directory, [A], end_offset=1, has_footer=False)
    with pytest.raises(CorruptCheckpointError, match="footer"):
        names(directory)


def test_a_transaction_counts_once_it_has_ended(tmp_path):
    directory = write_metadata(tmp_path, [BEGINS, A, ENDS, BEGINS, B, ABORTS, C, BEGINS, B])
    assert names(directory) == ["a", "c"]
    found = read_metadata(find_partition(str(directory)))
    assert (found.open_transaction, found.end_offset) == ("", 9)
    assert names(directory, 2) == []
    ended = read_metadata(find_partition(str(directory)), at=7)
    assert (ended.open_transaction, ended.end_offset) == (None, 7)


def test_one_snapshot_alone_has_its_state(tmp_path):
    path = write_snapshot(write_metadata(tmp_path, [A]), [A, B], end_offset=7)
    found = read_snapshot(str(path), DEFAULT_ENV)
    assert list(found.image.topics_by_name()) == ["a", "b"]
    assert (found.end_offset, found.epoch, found.log_end_offset, found.committed_offset) == (7, 1, None, 7)


def quorum_state(directory, text):
    (directory / "quorum-state").write_text(text)
    return read_metadata(find_partition(str(directory)))


def test_all_is_committed_of_one_voter_and_the_snapshot_of_several(tmp_path):
    directory = write_metadata(tmp_path, [A, B, C])
    assert read_metadata(find_partition(str(directory))).committed_offset == 0
    one = quorum_state(directory, '{"leaderId":0,"leaderEpoch":4,"currentVoters":[{"voterId":0}],"data_version":0}')
    assert (one.quorum, one.committed_offset) == (QuorumState(0, 4, (0,)), 3)
    write_snapshot(directory, [A, B], end_offset=2)
    many = '{"leaderId":1,"leaderEpoch":4,"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    assert quorum_state(directory, many).committed_offset == 2
    newer = quorum_state(directory, '{"leaderId":1,"leaderEpoch":4,"votedId":-1,"data_version":1}')
    assert (newer.quorum, newer.committed_offset) == (QuorumState(1, 4, None), 2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"leaderId":1,"leaderEpoch":"x"}', "[" * 100_000])
def test_a_damaged_quorum_state_is_told_and_the_records_are_read(tmp_path, text):
    directory = write_metadata(tmp_path, [A])
    found = quorum_state(directory, text)
    assert (found.quorum, list(found.image.topics_by_name())) == (None, ["a"])
    assert "quorum-state" in found.image.problems[0]
    with pytest.raises(CorruptCheckpointError, match="quorum"):
        read_quorum_state(str(directory), DEFAULT_ENV)
