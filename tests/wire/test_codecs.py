"""Goal: what a server relies on: views of records, parts, defaults, and one typed error for any bad bytes.
Method: messages by hand, in the versions where a rule begins or ends."""

from __future__ import annotations

import struct
import tracemalloc
from uuid import UUID

import pytest

from kstore.errors import InvalidRecordError, InvalidRequestError
from kstore.wire.compiler import codec
from kstore.wire.encoder import MOST_JOINED_BYTES
from kstore.wire.messages import (
    ApiVersionsResponse,
    ConsumerGroupHeartbeatResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kstore.wire.protocol import MOST_ELEMENTS_BYTES, TaggedField
from kstore.wire.schema import decode_message, encode_message, object_size
from kstore.wire.source import MOST_OF_LAYOUTS
from tests.reference.wire import as_dict

TOPIC_ID = UUID("02cb951e-c57c-4639-8587-98dfa6b2f7c0")


def produce(*records, name="t"):
    partitions = [ProduceRequest.PartitionProduceData(index=i, records=each) for i, each in enumerate(records)]
    topic = ProduceRequest.TopicProduceData(name=name, partition_data=partitions)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def encoded(message, version):
    return b"".join(map(bytes, codec(type(message), version=version).encode(message)))


def decoded(cls, data, version):
    return codec(cls, version=version).decode(data)[0]


def refusal(cls, data, version):
    with pytest.raises(InvalidRequestError) as caught:
        codec(cls, version=version).decode(data)
    return caught.value


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_records_are_a_view_of_the_frame(version, kind):
    frame = kind(encoded(produce(b"records of one", None, b""), version))
    first, null, empty = decoded(ProduceRequest, frame, version).topic_data[0].partition_data
    assert type(first.records) is memoryview
    assert first.records.obj is frame
    assert first.records == b"records of one"
    assert null.records is None
    assert empty.records == b""


class FileSlice:
    """What a server sends in another way than by its bytes."""

    def __len__(self):
        return 5


@pytest.mark.parametrize("version", [4, 12])
def test_bodies_of_an_answer_are_parts_of_their_own_and_the_rest_is_joined(version):
    large, slice_of_file = memoryview(bytes(MOST_JOINED_BYTES + 1)), FileSlice()
    bodies = (bytes(MOST_JOINED_BYTES), large, b"small", slice_of_file)
    partitions = [FetchResponse.PartitionData(partition_index=i, records=each) for i, each in enumerate(bodies)]
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)
    parts = codec(FetchResponse, version=version).encode(FetchResponse(responses=[topic]))
    assert [type(part) for part in parts] == [bytes, memoryview, bytes, FileSlice, bytes][: len(parts)]
    assert parts[1] is large
    assert parts[3] is slice_of_file
    data = b"".join(b"12345" if part is slice_of_file else bytes(part) for part in parts)
    again = decoded(FetchResponse, data, version).responses[0].partitions
    assert [bytes(each.records) for each in again] == [*map(bytes, bodies[:3]), b"12345"]


def test_message_ends_where_its_last_field_does():
    data = encoded(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert codec(SaslHandshakeRequest, version=1).decode(b"xx" + data + b"more", 2)[1] == 2 + len(data)


@pytest.mark.parametrize("version", [8, 9])
def test_count_is_compared_with_the_bytes_left_before_a_list_is_made(version):
    count = struct.pack(">i", 2**31 - 1) if version == 8 else b"\xff\xff\xff\xff\x0f"
    tracemalloc.start()
    error = refusal(MetadataRequest, count + bytes(40), version)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.field == "topics"
    assert peak < 1 << 20


def topic_frame(count):
    """A MetadataRequest v9 of topics without names, two bytes each."""
    size = bytearray()
    value = count + 1
    while value > 127:
        size.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(size) + bytes((value,)) + b"\x01\x00" * count + b"\0\0\0\0"


def test_lists_of_a_message_share_one_limit_of_memory():
    (field,) = (each for each in MetadataRequest.fields if each.name == "topics")
    most = MOST_ELEMENTS_BYTES // object_size(field)
    assert len(decoded(MetadataRequest, topic_frame(most), 9).topics) == most
    error = refusal(MetadataRequest, topic_frame(most + 1), 9)
    assert (error.field, error.position) == ("topics", 3)
    assert str(MOST_ELEMENTS_BYTES) in str(error)


def test_lists_inside_of_a_list_count_towards_the_limit():
    # Each topic has 100 partitions; the numbers of topics and of partitions are far below the limit one by one.
    partitions = struct.pack(">i", 100) + struct.pack(">iq", 0, 0) * 100
    count = MOST_ELEMENTS_BYTES // (300 * 100)
    head = struct.pack(">ib", -1, 0) + struct.pack(">i", count)
    error = refusal(ListOffsetsRequest, head + (b"\0\1t" + partitions) * count, 2)
    assert error.field == "topics.partitions"


def test_unknown_tags_count_towards_the_limit():
    tags = b"".join(
        struct.pack("BBBB", tag & 0x7F | 0x80, tag >> 7 & 0x7F | 0x80, tag >> 14, 0) for tag in range(400_000)
    )
    count = 400_000
    size = bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14))
    data = encoded(MetadataRequest(topics=[]), 9)[:-1] + size + tags
    assert "memory" in str(refusal(MetadataRequest, data, 9))


def test_unknown_tags_of_all_structs_count_towards_one_limit():
    (field,) = (each for each in MetadataRequest.fields if each.name == "topics")
    count = MOST_ELEMENTS_BYTES // (object_size(field) + 150)
    frame = topic_frame(count)
    assert len(decoded(MetadataRequest, frame, 9).topics) == count
    error = refusal(MetadataRequest, frame.replace(b"\x01\x00", b"\x01\x01\x64\x00"), 9)
    assert error.field == "topics.tagged fields"


@pytest.mark.parametrize(
    ("size", "field", "position", "expected", "found"),
    [
        (0, "transactionalId", 0, "1 bytes", 0),
        (1, "acks", 1, "2 bytes", 0),
        (2, "acks", 1, "2 bytes", 1),
        (6, "timeoutMs", 3, "4 bytes", 3),
        (7, "topicData", 7, "1 bytes", 0),
        (10, "topicData", 8, "a length of at most 0", 1),
        (16, "topicData.partitionData", 11, "a length of at most 0", 1),
        (18, "topicData.partitionData.records", 16, "a length of at most 2", 3),
        (19, "topicData.partitionData.tagged fields", 19, "1 bytes", 0),
        (20, "topicData.tagged fields", 20, "1 bytes", 0),
        (21, "tagged fields", 21, "1 bytes", 0),
    ],
)
def test_message_that_ends_early_is_refused_with_its_field_and_place(size, field, position, expected, found):
    data = encoded(produce(b"abc"), 9)
    assert len(data) == 22
    error = refusal(ProduceRequest, data[:size], 9)
    text = f"ProduceRequest v9: {field} at byte {position} of {size}: expected {expected}, found {found}"
    assert str(error) == text
    assert (error.field, error.position, error.expected, error.found) == (field, position, expected, found)


def test_string_that_is_no_utf8_is_refused_at_its_bad_byte():
    error = refusal(SaslHandshakeRequest, b"\0\4ab\xffd", 1)
    assert (error.field, error.position, error.expected) == ("mechanism", 4, "UTF-8")


def test_null_is_refused_where_it_may_not_be():
    for data, field in ((b"\xff\xff", "mechanism"), (b"\xff\xfe", "mechanism")):
        assert refusal(SaslHandshakeRequest, data, 1).field == field
    error = refusal(ProduceRequest, b"\0\0\1\0\0\0\0\0\0", 9)
    assert (error.field, error.found) == ("topicData", "null")


def test_string_of_more_bytes_than_kafka_has_is_refused_both_ways():
    long = "x" * 32_768
    with pytest.raises(ValueError, match=r"ProduceRequest v9: topicData.name: .*at most 32767 bytes, found 32768"):
        encoded(produce(name=long), 9)
    with pytest.raises(ValueError, match=r"ProduceRequest v3: topicData.name: "):
        encoded(produce(name=long), 3)
    assert decoded(ProduceRequest, encoded(produce(name=long[1:]), 9), 9).topic_data[0].name == long[1:]
    data = encoded(produce(name=long[1:]), 9).replace(b"\x80\x80\x02" + b"x", b"\x81\x80\x02" + b"xx", 1)
    assert "at most 32767" in str(refusal(ProduceRequest, data, 9))
    with pytest.raises(InvalidRecordError, match="at most 32767 bytes, found 32768"):
        decode_message(ProduceRequest.schema, data, version=9)
    with pytest.raises(ValueError, match="at most 32767 bytes, found 32768"):
        encode_message(SaslHandshakeRequest.schema, {"mechanism": long}, version=1)


def test_unknown_tagged_fields_are_kept_and_written_again():
    tags = (TaggedField(7, b""), TaggedField(300, b"later"))
    request = produce(b"abc")
    request.unknown_tagged_fields = tags
    request.topic_data[0].unknown_tagged_fields = tags[:1]
    again = decoded(ProduceRequest, encoded(request, 9), 9)
    assert again == request
    assert encoded(again, 9) == encoded(request, 9)
    # Versions that are not flexible have no place for them.
    assert encoded(again, 8) == encoded(produce(b"abc"), 8)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (b"\2\7\0\7\0", "a tag above 7"),
        (b"\2\7\0\3\0", "a tag above 7"),
        (b"\1\7\5ab", "5 bytes of tag 7"),
        (b"\x7f", "a length of at most 0"),
        (b"\1\xff\xff\xff\xff\xff\1\0", "a varint of at most 5 bytes"),
    ],
)
def test_tagged_fields_that_contradict_themselves_are_refused(tags, expected):
    data = encoded(produce(b"abc"), 9)[:-1] + tags
    error = refusal(ProduceRequest, data, 9)
    assert (error.field, error.expected) == ("tagged fields", expected)
    # Where some are known, they are read in another way.
    data = encoded(FetchRequest(topics=[]), 16)[:-1] + tags
    error = refusal(FetchRequest, data, 16)
    assert (error.field, error.expected) == ("tagged fields", expected)


def test_tagged_field_shorter_than_it_says_is_refused():
    request = FetchRequest(topics=[], replica_state=FetchRequest.ReplicaState(replica_id=1))
    data = encoded(request, 16)
    assert decoded(FetchRequest, data, 16) == request
    at = data.rindex(b"\1\x0d")
    error = refusal(FetchRequest, data[:at] + b"\1\x0e" + data[at + 2 :] + b"\0", 16)
    assert error.field == "replicaState"


def test_tagged_field_of_defaults_is_not_written():
    plain = FetchResponse.PartitionData(records=b"")
    same = FetchResponse.PartitionData(records=b"", diverging_epoch=FetchResponse.EpochEndOffset())
    other = FetchResponse.PartitionData(records=b"", diverging_epoch=FetchResponse.EpochEndOffset(epoch=0))
    one, two, three = (
        encoded(FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[each])]), 16)
        for each in (plain, same, other)
    )
    assert one == two
    assert len(three) == len(one) + 15
    found = decoded(FetchResponse, three, 16).responses[0].partitions[0].diverging_epoch
    assert found == FetchResponse.EpochEndOffset(epoch=0, end_offset=-1)
    assert decoded(FetchResponse, one, 16).responses[0].partitions[0].diverging_epoch is None
    assert decoded(ApiVersionsResponse, encoded(ApiVersionsResponse(), 3), 3).finalized_features_epoch == -1
    assert len(encoded(ApiVersionsResponse(finalized_features_epoch=0), 3)) > len(encoded(ApiVersionsResponse(), 3))


def test_ignorable_field_is_dropped_in_versions_without_it():
    with_session = FetchRequest(session_id=5, session_epoch=7, rack_id="r", topics=[])
    assert encoded(with_session, 4) == encoded(FetchRequest(topics=[]), 4)
    assert decoded(FetchRequest, encoded(with_session, 4), 4) == FetchRequest(topics=[])


def test_other_field_may_not_say_anything_in_versions_without_it():
    partition = FetchResponse.PartitionData(preferred_read_replica=0, records=b"")
    answer = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    assert encoded(answer, 11)
    with pytest.raises(ValueError, match=r"FetchResponse v10: responses.partitions.preferredReadReplica: expected the"):
        encoded(answer, 10)
    partition.preferred_read_replica = -1
    assert encoded(answer, 10)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"acks": 2**15}, "acks"),
        ({"acks": None}, "acks"),
        ({"timeout_ms": -(2**31) - 1}, "timeoutMs"),
        ({"topic_data": None}, "topicData"),
        ({"topic_data": [None]}, "topicData.name"),
        ({"topic_data": [ProduceRequest.TopicProduceData(name=None)]}, "topicData.name"),
        ({"topic_data": [ProduceRequest.TopicProduceData(name="\ud800")]}, "topicData.name"),
        ({"transactional_id": b"bytes"}, "transactionalId"),
        ({"unknown_tagged_fields": (TaggedField(1, b""), TaggedField(1, b""))}, "tagged fields"),
    ],
)
def test_value_that_cannot_be_written_is_refused_with_its_field(change, reason):
    values = {"acks": 1, "timeout_ms": 1, "topic_data": []} | change
    with pytest.raises(ValueError, match=rf"ProduceRequest v9: .*{reason}.*: "):
        encoded(ProduceRequest(**values), 9)


def test_struct_that_is_null_is_one_byte():
    null = encoded(ConsumerGroupHeartbeatResponse(), 0)
    empty = encoded(ConsumerGroupHeartbeatResponse(assignment=ConsumerGroupHeartbeatResponse.Assignment()), 0)
    assert null[-2:] == b"\xff\0"
    assert empty[-4:] == b"\1\1\0\0"
    assert decoded(ConsumerGroupHeartbeatResponse, null, 0).assignment is None
    assert decoded(ConsumerGroupHeartbeatResponse, empty, 0).assignment.topic_partitions == []


def test_field_that_a_version_lacks_has_kafkas_default():
    request = decoded(FetchRequest, encoded(FetchRequest(topics=[]), 4), 4)
    assert (request.session_epoch, request.cluster_id, request.rack_id) == (-1, None, "")
    assert (request.forgotten_topics_data, request.replica_state) == ([], None)
    assert FetchRequest().max_bytes == 0x7FFFFFFF
    assert FetchRequest.FetchTopic().topic_id == UUID(int=0)
    commit = OffsetCommitRequest(topics=[])
    assert (commit.generation_id_or_member_epoch, commit.retention_time_ms) == (-1, -1)


def test_topic_ids_are_those_that_were_written():
    ids = [TOPIC_ID, UUID(int=0), UUID(int=2**128 - 1), TOPIC_ID]
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=each) for each in ids])
    for frame in (encoded(request, 13), bytearray(encoded(request, 13))):
        assert [topic.topic_id for topic in decoded(FetchRequest, frame, 13).topics] == ids


@pytest.mark.parametrize("version", [7, 16])
def test_arrays_of_numbers_of_any_length_are_read_as_written(version):
    for count in (0, 1, MOST_OF_LAYOUTS, MOST_OF_LAYOUTS + 1, 127, 128, 20_000):
        topic = FetchRequest.ForgottenTopic(partitions=[number - 5 for number in range(count)])
        request = FetchRequest(topics=[], forgotten_topics_data=[topic])
        data = encoded(request, version)
        assert data == encode_message(FetchRequest.schema, as_dict(request, version=version), version=version)
        assert decoded(FetchRequest, data, version) == request


@pytest.mark.parametrize("version", [1, 2])
def test_bytes_of_any_length_are_read_as_written(version):
    for power in (7, 14, 21):
        for size in range(2**power - 3, 2**power + 2):
            request = SaslAuthenticateRequest(auth_bytes=bytes(size))
            data = encoded(request, version)
            assert data == encode_message(request.schema, as_dict(request, version=version), version=version)
            assert decoded(SaslAuthenticateRequest, data, version) == request


def test_messages_are_compared_by_their_fields_and_share_no_list():
    one, other = ProduceRequest(), ProduceRequest()
    assert one == other
    one.topic_data.append(ProduceRequest.TopicProduceData(name="t"))
    assert other.topic_data == []
    assert one != other
    assert one != object()
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_message_shows_its_fields_and_only_the_size_of_records():
    shown = repr(produce(b"abc"))
    assert "acks=-1" in shown
    assert "records=<3 bytes>" in shown
    assert shown.startswith("ProduceRequest(transactional_id=None")


def test_wrong_name_of_a_field_is_refused():
    with pytest.raises(TypeError, match="ack"):
        ProduceRequest(ack=1)
    with pytest.raises(AttributeError):
        ProduceRequest().ack = 1


@pytest.mark.parametrize("version", [2, 14, -1])
def test_version_that_a_message_does_not_have_is_refused(version):
    with pytest.raises(ValueError, match=rf"ProduceRequest has versions 3 to 13, got {version}"):
        codec(ProduceRequest, version=version)
