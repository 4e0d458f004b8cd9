"""Goal: the tables of requests and answers are whole, and their classes, stub and frames follow them.
Method: the ranges that a broker 4.1 offers, by hand; rules that every table keeps; the stub made again."""

from __future__ import annotations

import keyword

from kstore.wire.classes import UNKNOWN_TAGS, Message, attribute
from kstore.wire.frames import apis
from kstore.wire.messages import message_named, tables
from kstore.wire.schema import STRUCT, TAGGED_FIELDS
from tests.interop.definitions import APIS
from tests.making.collecting import over
from tests.wire import stub

# What a broker 4.1 serves; its ApiVersions says Produce 0-13.
OFFERED = """
Produce 0 3-13, Fetch 1 4-18, ListOffsets 2 1-10, Metadata 3 0-13, OffsetCommit 8 2-9, OffsetFetch 9 1-9,
FindCoordinator 10 0-6, JoinGroup 11 0-9, Heartbeat 12 0-4, LeaveGroup 13 0-5, SyncGroup 14 0-5, DescribeGroups 15 0-6,
ListGroups 16 0-5, SaslHandshake 17 0-1, ApiVersions 18 0-4, CreateTopics 19 2-7, DeleteTopics 20 1-6,
DeleteRecords 21 0-2, InitProducerId 22 0-5, OffsetForLeaderEpoch 23 2-4, AddPartitionsToTxn 24 0-5,
AddOffsetsToTxn 25 0-4, EndTxn 26 0-5, TxnOffsetCommit 28 0-5, DescribeAcls 29 1-3, CreateAcls 30 1-3,
DeleteAcls 31 1-3, DescribeConfigs 32 1-4, AlterConfigs 33 0-2, DescribeLogDirs 35 1-4, SaslAuthenticate 36 0-2,
CreatePartitions 37 0-3, DeleteGroups 42 0-2, IncrementalAlterConfigs 44 0-1, OffsetDelete 47 0-0,
DescribeCluster 60 0-2, DescribeProducers 61 0-0, DescribeTransactions 65 0-0, ListTransactions 66 0-2,
ConsumerGroupHeartbeat 68 0-1, ConsumerGroupDescribe 69 0-1, ListConfigResources 74 0-1, DescribeTopicPartitions 75 0-0
"""


def test_versions_are_those_that_a_broker_offers():
    offered = {f"{api.name} {key} {api.versions[0]}-{api.versions[-1]}" for key, api in apis().items()}
    assert offered == set(OFFERED.replace("\n", " ").strip().split(", "))
    assert {api.name for api in apis().values()} == set(APIS)


def test_answer_has_the_versions_of_its_request():
    for key, api in apis().items():
        schema = message_named(f"{api.name}Response").schema
        assert (schema.api_keys, schema.versions) == ((key,), api.versions)
        assert set(schema.flexible) & set(api.versions) == set(api.flexible) & set(api.versions)


def structs(cls: type[Message]):
    yield cls
    for struct in cls.structs.values():
        yield from structs(struct)


@over("name", list(tables()), by=lambda name: "requests" if "Request" in name else "responses")
def test_table_keeps_the_rules_of_messages(name):
    cls = message_named(name)
    schema = cls.schema
    assert set(schema.flexible) & set(schema.versions) in (
        set(),
        set(range(max(schema.flexible.start, schema.versions[0]), schema.versions.stop)),
    )
    for struct in structs(cls):
        names = [attribute(field.name) for field in struct.fields]
        assert len(set(names)) == len(names)
        assert not {*names} & {UNKNOWN_TAGS, TAGGED_FIELDS, "fields", "structs", "schema"}
        assert [each for each in names if keyword.iskeyword(each) or not each.isidentifier()] == []
        for version in schema.versions:
            tags = [field.tag for field in struct.fields if field.tag is not None and version in field.versions]
            assert len(set(tags)) == len(tags)
            assert not tags or version in schema.flexible
        for field in struct.fields:
            assert (field.kind == STRUCT) == bool(field.fields), field.name
            assert field.default is not None or field.nullable or field.kind == "records", field.name


@over("name", list(tables()), by=lambda name: "requests" if "Request" in name else "responses")
def test_structs_of_one_name_have_the_same_fields(name):
    cls = message_named(name)
    for struct in structs(cls):
        for field in struct.fields:
            if field.kind == STRUCT:
                assert struct.structs[field.name].fields == field.fields
                assert getattr(cls, field.struct) is struct.structs[field.name]


def test_stub_is_that_of_the_tables():
    assert stub.PATH.read_text() == stub.text()
