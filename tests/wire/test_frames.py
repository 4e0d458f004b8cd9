"""Goal: requests and answers have Kafka's headers, and a frame that is not served says what it asked for.
Method: frames by hand, in the versions where the headers change."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import pytest

from kstore.errors import InvalidRequestError, UnsupportedVersionError
from kstore.wire import frames
from kstore.wire.encoder import MOST_JOINED_BYTES
from kstore.wire.frames import apis, decode_request, decode_response, encode_request, encode_response
from kstore.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    message_named,
)
from tests.reference.wire import Maker


def joined(parts):
    return b"".join(map(bytes, parts))


def test_client_id_is_never_compact():
    plain = bytes.fromhex("000c 0003 00000007 0002") + b"me" + bytes.fromhex("0001 67 00000005 0001 6d ffff")
    flexible = bytes.fromhex("000c 0004 00000007 0002") + b"me\0" + bytes.fromhex("02 67 00000005 02 6d 00 00")
    body = HeartbeatRequest(group_id="g", generation_id=5, member_id="m", group_instance_id=None)
    for version, frame in ((3, plain), (4, flexible)):
        assert decode_request(frame) == (12, version, 7, "me", body)
        parts = encode_request(body, version=version, correlation_id=7, client_id="me")
        assert joined(parts) == struct.pack(">i", len(frame)) + frame


def test_client_id_may_be_null_and_its_header_may_have_tags():
    frame = bytes.fromhex("000c 0004 00000007 ffff 01 05 01 aa") + bytes.fromhex("02 67 00000005 02 6d 00 00")
    request = decode_request(frame)
    assert (request.client_id, request.body.group_id) == (None, "g")


def test_answer_to_api_versions_has_the_header_that_every_client_reads():
    for version in range(5):
        data = joined(encode_response(ApiVersionsResponse(error_code=35), version=version, correlation_id=9))
        assert data[:10] == struct.pack(">iih", len(data) - 4, 9, 35)
        assert decode_response(data[4:], api_key=18, version=version) == (9, ApiVersionsResponse(error_code=35))


def test_header_of_a_flexible_answer_has_tagged_fields():
    body = HeartbeatResponse(throttle_time_ms=1, error_code=2)
    plain = joined(encode_response(body, version=3, correlation_id=9))
    flexible = joined(encode_response(body, version=4, correlation_id=9))
    assert plain == struct.pack(">iiih", 10, 9, 1, 2)
    assert flexible == struct.pack(">iixihx", 12, 9, 1, 2)


def test_size_of_an_answer_counts_its_bodies():
    body = bytes(MOST_JOINED_BYTES + 1)
    partition = FetchResponse.PartitionData(records=body)
    answer = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition, partition])])
    parts = encode_response(answer, version=12, correlation_id=-1)
    assert [part is body for part in parts] == [False, True, False, True, False]
    data = joined(parts)
    assert struct.unpack_from(">ii", data) == (len(data) - 4, -1)
    assert decode_response(data[4:], api_key=1, version=12) == (-1, answer)


@pytest.mark.parametrize(
    ("api_key", "version", "offered"),
    [
        (0, 2, "Produce 3 to 13"),
        (3, 77, "Metadata 0 to 13"),
        (18, 5, "ApiVersions 0 to 4"),
        (8, 10, "OffsetCommit 2 to 9"),
        (3, -1, "Metadata 0 to 13"),
        (200, 0, "another api"),
        (4, 0, "another api"),
    ],
)
def test_request_that_is_not_served_says_what_it_asked_for(api_key, version, offered):
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match=offered) as caught:
            decode_request(struct.pack(">hhih", api_key, version, 77, -1))
        error = caught.value
        assert (error.api_key, error.version, error.correlation_id) == (api_key, version, 77)


def test_requests_that_are_not_served_take_no_memory():
    served = sum(len(api.versions) for api in apis().values())
    for api_key in (3, 200):
        for version in range(20, 2000):
            with pytest.raises(UnsupportedVersionError):
                decode_request(struct.pack(">hhih", api_key, version, 77, -1))
    assert len(frames._request_decoders) <= served
    kept = [each for each in vars(frames).values() if hasattr(each, "cache_info")]
    assert all(each.cache_info().currsize <= 1 for each in kept)


@pytest.mark.parametrize("size", range(12))
def test_frame_that_ends_in_its_header_is_refused(size):
    frame = joined(encode_request(MetadataRequest(topics=None), version=9, correlation_id=1, client_id="c"))[4:]
    with pytest.raises(InvalidRequestError, match="expected"):
        decode_request(frame[:size])


def test_example_of_the_page_prints_what_it_shows(capsys):
    page = (Path(__file__).parents[2] / "docs" / "internals" / "wire.md").read_text()
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "wire.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_bytes_after_a_request_are_passed_over():
    frame = joined(encode_request(ApiVersionsRequest(), version=0, correlation_id=1))[4:]
    assert decode_request(frame + b"more") == decode_request(frame)


def test_requests_and_answers_of_every_version_travel_in_frames():
    for key, api in apis().items():
        for version in api.versions:
            maker = Maker(random.Random(version), version=version, is_flexible=version in api.flexible)
            request = maker.message(message_named(f"{api.name}Request"))
            frame = joined(encode_request(request, version=version, correlation_id=version, client_id="c"))
            assert decode_request(frame[4:]) == (key, version, version, "c", request)
            answer = maker.message(message_named(f"{api.name}Response"))
            frame = joined(encode_response(answer, version=version, correlation_id=version))
            assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
            assert decode_response(frame[4:], api_key=key, version=version) == (version, answer)
