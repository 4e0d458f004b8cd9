"""Goal: the hash of a group's topics is the one that Kafka's coordinator writes.
Method: values of hash4j 0.22, and of records that a broker 4.1.1 wrote."""

from __future__ import annotations

from uuid import UUID

import pytest

from kstore.coordinator.group.consumer.hashing import xxh3_64
from kstore.coordinator.group.consumer.topics import Topic, TopicsImage
from kstore.wire.protocol import ZERO_UUID

# By the size of the input.
HASHES = {
    0: 3244421341483603138,
    1: -2220562881957146901,
    3: -6266602912829716452,
    4: 6297312323375345790,
    8: -5693888875394197238,
    9: -8445836227155624914,
    16: 3159599325006435930,
    17: 7070371635116224842,
    128: -1633510367785085978,
    129: -5383259723849235271,
    240: 4473034316189165092,
    241: -4792628563661132438,
    1024: -2568512991238798245,
    1025: -4010797056655636473,
    2000: -287206472305095639,
}
TOPICS = {
    "t": Topic(UUID("41163631-5b7b-4644-aaff-b63aa3e2b89d"), 4),
    "u": Topic(UUID("237d1da7-0ce0-4f7b-aff1-b3c643d38c4a"), 3),
    "rex-a": Topic(UUID("afe63b86-1c9d-4793-b899-c50b26ea7b36"), 2),
    "rex-b": Topic(UUID("af3d451e-c545-4fca-99ef-d8172030b136"), 1),
}


@pytest.mark.parametrize("size", HASHES)
def test_the_hash_of_bytes_is_that_of_hash4j(size):
    assert xxh3_64(bytes((place * 7 + size) & 0xFF for place in range(size))) == HASHES[size]


def test_the_hash_of_topics_is_that_of_a_broker():
    image = TopicsImage(TOPICS)
    assert image.hash_of(["t"]) == -280217228297527054
    assert image.hash_of(["u", "t", "missing"]) == 1308506356776734663
    assert image.hash_of(["u", "rex-a", "rex-b"]) == 7464054442126377371
    assert image.hash_of(["missing"]) == image.hash_of([]) == 0


def test_a_topic_without_an_id_is_not_there():
    image = TopicsImage({"old": Topic(ZERO_UUID, 1)} | TOPICS)
    assert "old" not in image.topics
    assert ZERO_UUID not in image.names
