"""Goal: partitions of a tier are looked at in another process as in this one, by what it is given of them alone.
Method: small logs that are partly in a tier, opened through what pickle makes of an Env's directories."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from kstore import LogNotFoundError, open_log
from kstore.env import Env
from kstore.env.tiered import TieredEnv
from kstore.tier.opening import open_tier
from tests.making.tiers import OTHER_TOPIC_ID, TOPIC_ID, Tier, text_of, write_events
from tests.tier.test_reading import SEGMENTS, Joined, joined, joined_log

__all__ = ["joined"]


def in_another_process(env: Env, *paths: Path) -> Env:
    """An Env of what another process gets."""
    maker = env.carried_directories(map(str, paths))
    assert maker is not None
    data = pickle.dumps(maker)
    assert b"PRIVATE KEY" not in data
    return pickle.loads(data).env()


def test_a_directory_that_another_process_looks_at_has_the_same_log(joined: Joined) -> None:
    joined_log(joined)
    env = in_another_process(open_tier([joined.root], joined.tier.path).env, joined.root / "t-0")
    with open_log(joined.root / "t-0", env=env) as log:
        assert [record.offset for record in log] == list(range(50))
    with pytest.raises(LogNotFoundError):
        open_log(joined.root / "u-0", env=env)


def test_a_directory_of_another_process_has_the_new_answer_after_a_new_look(joined: Joined) -> None:
    joined.upload(SEGMENTS[0])
    joined.write(SEGMENTS[2:], start=0)
    env = in_another_process(open_tier([joined.root], joined.tier.path).env, joined.root / "t-0")
    joined.upload(SEGMENTS[1])
    if joined.has_events:
        write_events(joined.root, joined.events)
    with open_log(joined.root / "t-0", env=env) as log:
        assert isinstance(env, TieredEnv)
        env.invalidate_listing(str(joined.root / "t-0"))
        log.refresh()
        assert [record.offset for record in log] == list(range(50))


def test_another_process_gets_the_topic_of_a_name_that_this_one_reads(tmp_path: Path) -> None:
    for topic_id, segment in ((OTHER_TOPIC_ID, SEGMENTS[1]), (TOPIC_ID, SEGMENTS[0])):
        tier = Tier(path=tmp_path / "tier", topic_id=topic_id)
        made = tier.upload(segment)
    os.utime(made.path(".log"), (2**31, 2**31))
    files = open_tier([tier.path], tier.path)
    assert OTHER_TOPIC_ID.encode() not in pickle.dumps(files.env.carried_directories([str(tier.path / "t-0")]))
    env = in_another_process(files.env, tier.path / "t-0")
    newer = Tier(path=tier.path, topic_id=text_of(77)).upload(SEGMENTS[2])
    os.utime(newer.path(".log"), (2**31 + 1, 2**31 + 1))
    assert env.listdir(str(tier.path)) == ["t-0"]
    with open_log(tier.path / "t-0", env=env) as log:
        assert [record.offset for record in log] == list(range(10))


def test_what_another_process_gets_is_of_its_partitions_alone(joined: Joined) -> None:
    joined_log(joined)
    other = Tier(path=joined.tier.path, topic="u", topic_id=OTHER_TOPIC_ID)
    made = other.upload(SEGMENTS[0])
    files = open_tier([joined.root], joined.tier.path)
    data = pickle.dumps(files.env.carried_directories([str(joined.root / "t-0")]))
    assert joined.made[0].topic_id.encode() in data
    assert made.topic_id.encode() not in data
