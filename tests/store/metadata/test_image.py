"""Goal: each record of `__cluster_metadata` changes the state of the cluster as Kafka's deltas do.
Method: values written by the schemas and decoded again; the image compared."""

from __future__ import annotations

import uuid

import pytest

from kstore.record.kraft import KRaftVersionFeature, KRaftVersionRecord, Voter, VotersRecord
from kstore.record.schemas.metadata import METADATA_RECORDS
from kstore.record.schemas.topics import DecodedMessage, decode_metadata_record
from kstore.store.metadata.image import _APPLY, MOST_UNKNOWN, MetadataImage
from kstore.wire.schema import parse_schemas
from tests.making.cluster import metadata

ID, OTHER, DIRECTORY, MOVED = (uuid.UUID(int=number) for number in (11, 12, 13, 14))
NO_DIRECTORY = uuid.UUID(int=0)


def image_of(*values: bytes) -> MetadataImage:
    image = MetadataImage()
    for offset, value in enumerate(values):
        message = decode_metadata_record(value)
        if isinstance(message, DecodedMessage):
            image.take(offset, message)
        else:
            image.take_unknown(offset, message)
    return image


def topic(name="t", topic_id=ID):
    return metadata(2, name=name, topicId=topic_id)


def partition(number=0, version=1, **more):
    fields = {"directories": [DIRECTORY]} if version else {}
    lists = {"replicas": [1], "isr": [1], "removingReplicas": [], "addingReplicas": []}
    numbers = {"partitionId": number, "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0}
    return metadata(3, version, topicId=ID, **{**numbers, **lists, **fields, **more})


def change(version=1, **fields):
    return metadata(5, version, partitionId=0, topicId=ID, **fields)


def config(resource, name, value, key="k"):
    return metadata(4, resourceType=resource, resourceName=name, name=key, value=value)


def broker(epoch=5, version=3, **more):
    return metadata(
        0,
        version,
        brokerId=0,
        incarnationId=ID,
        brokerEpoch=epoch,
        endPoints=[{"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}],
        features=[],
        rack=None,
        fenced=True,
        **{"isMigratingZkBroker": False, "inControlledShutdown": False, "logDirs": [DIRECTORY], **more},
    )


def test_every_record_type_is_applied_or_is_of_a_transaction():
    names = {schema.name for schema in parse_schemas(METADATA_RECORDS).values()}
    applied = {"".join(word.capitalize() for word in name.split("_")) for name in _APPLY}
    assert names - applied == {
        "NoOpRecord",
        "BeginTransactionRecord",
        "EndTransactionRecord",
        "AbortTransactionRecord",
    }


def test_a_change_of_the_leader_raises_both_epochs():
    state = image_of(topic(), partition(), change(leader=2)).topics[ID].partitions[0]
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 1, 1)


def test_a_change_without_a_leader_leaves_it_and_its_epoch():
    state = image_of(topic(), partition(), change(isr=[1, 2])).topics[ID].partitions[0]
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (1, 0, 1, [1, 2])


def test_a_leader_that_is_gone_is_a_change():
    state = image_of(topic(), partition(), change(leader=-1)).topics[ID].partitions[0]
    assert (state.leader, state.leader_epoch) == (-1, 1)


def test_a_list_that_became_empty_is_a_change():
    state = image_of(topic(), partition(addingReplicas=[2]), change(addingReplicas=[], isr=[])).topics[ID].partitions[0]
    assert (state.adding_replicas, state.isr, state.replicas) == ([], [], [1])


def test_directories_of_replicas_are_those_of_the_last_record():
    assert image_of(topic(), partition()).topics[ID].partitions[0].directories == [DIRECTORY]
    assert image_of(topic(), partition(version=0)).topics[ID].partitions[0].directories == [NO_DIRECTORY]
    moved = image_of(topic(), partition(), change(directories=[MOVED]))
    assert moved.topics[ID].partitions[0].directories == [MOVED]


def test_recovery_state_changes_only_where_it_is_written():
    unclean = image_of(topic(), partition(), change(leaderRecoveryState=1), change(isr=[1]))
    assert unclean.topics[ID].partitions[0].leader_recovery_state == 1
    healed = image_of(topic(), partition(leaderRecoveryState=1), change(leaderRecoveryState=0))
    assert healed.topics[ID].partitions[0].leader_recovery_state == 0


def test_eligible_replicas_are_cleared_of_one_topic_or_of_all():
    with_elr = (topic(), partition(version=2, eligibleLeaderReplicas=[1], lastKnownElr=[2]), partition(1, version=2))
    for name in ("t", ""):
        cleared = image_of(*with_elr, metadata(28, topicName=name)).topics[ID].partitions
        assert (cleared[0].elr, cleared[0].last_known_elr, cleared[0].partition_epoch) == ([], [], 1)
        assert cleared[1].partition_epoch == 0
    assert image_of(*with_elr, metadata(28, topicName="u")).topics[ID].partitions[0].elr == [1]


def test_a_removed_topic_takes_its_configs_with_it_and_no_others():
    image = image_of(topic(), config(2, "t", "v"), config(4, "t", "v"), metadata(9, topicId=ID))
    assert image.topics == {}
    assert image.configs == {(4, "t"): {"k": "v"}}


def test_a_topic_that_was_made_again_is_another_topic():
    image = image_of(topic(), partition(), metadata(9, topicId=ID), topic(topic_id=OTHER))
    assert {name: found.topic_id for name, found in image.topics_by_name().items()} == {"t": OTHER}
    assert image.topics[OTHER].partitions == {}


def test_a_config_that_was_reset_is_gone():
    assert image_of(config(2, "t", "v"), config(2, "t", "w")).configs == {(2, "t"): {"k": "w"}}
    assert image_of(config(2, "t", "v"), config(2, "t", None)).configs == {}


def test_features_at_level_zero_are_gone_but_for_the_metadata_version():
    def level(name, number):
        return metadata(12, name=name, featureLevel=number)

    image = image_of(level("metadata.version", 7), level("group.version", 1), level("group.version", 0))
    assert image.features == {"metadata.version": 7}


def test_broker_zero_is_registered_changed_and_unregistered():
    def changed(version=1, **fields):
        return metadata(17, version, brokerId=0, brokerEpoch=5, **fields)

    assert image_of(broker()).brokers[0]["fenced"] is True
    assert image_of(broker(), metadata(8, id=0, epoch=5)).brokers[0]["fenced"] is False
    assert image_of(broker(), changed(fenced=-1)).brokers[0]["fenced"] is False
    back = image_of(broker(), changed(fenced=-1), metadata(7, id=0, epoch=5))
    assert back.brokers[0]["fenced"] is True
    stopping = image_of(broker(), changed(inControlledShutdown=1), changed(version=2, logDirs=[MOVED]))
    assert (stopping.brokers[0]["inControlledShutdown"], stopping.brokers[0]["logDirs"]) == (True, [MOVED])
    assert image_of(broker(), changed(version=2, logDirs=[])).brokers[0]["logDirs"] == [DIRECTORY]
    cordoned = image_of(broker(version=4), changed(version=3, cordonedLogDirs=[DIRECTORY]))
    assert cordoned.brokers[0]["cordonedLogDirs"] == [DIRECTORY]
    assert image_of(broker(), metadata(1, brokerId=0, brokerEpoch=5)).brokers == {}


def test_controllers_come_and_go():
    registered = metadata(27, controllerId=0, incarnationId=ID, zkMigrationReady=False, endPoints=[], features=[])
    assert image_of(registered).controllers[0]["incarnationId"] == ID
    assert image_of(registered, metadata(29, controllerId=0)).controllers == {}


def test_quotas_are_of_an_entity_whatever_the_order_of_its_parts():
    user, client = {"entityType": "user", "entityName": "u"}, {"entityType": "client-id", "entityName": None}

    def quota(entity, value, *, remove=False, key="producer_byte_rate"):
        return metadata(14, entity=entity, key=key, value=value, remove=remove)

    image = image_of(quota([user, client], 1.0), quota([client, user], 2.0))
    assert image.quotas == {(("client-id", None), ("user", "u")): {"producer_byte_rate": 2.0}}
    assert image_of(quota([user], 1.0), quota([user], 0.0, remove=True)).quotas == {}


def test_of_scram_credentials_only_iterations_are_kept():
    secret = {"salt": b"salt", "storedKey": b"key", "serverKey": b"key"}
    credential = metadata(11, name="u", mechanism=1, iterations=4096, **secret)
    image = image_of(credential)
    assert image.scram == {(1, "u"): 4096}
    assert image_of(credential, metadata(22, name="u", mechanism=2)).scram == {(1, "u"): 4096}
    assert image_of(credential, metadata(22, name="u", mechanism=1)).scram == {}
    assert b"salt" not in repr(vars(image)).encode()


def test_acls_and_tokens_come_and_go_by_id():
    acl = metadata(
        18,
        id=ID,
        resourceType=2,
        resourceName="t",
        patternType=3,
        principal="User:u",
        host="*",
        operation=3,
        permissionType=3,
    )
    assert image_of(acl).acls[ID]["principal"] == "User:u"
    assert image_of(acl, metadata(19, id=ID)).acls == {}
    token = metadata(
        10,
        owner="User:u",
        requester="User:u",
        renewers=[],
        issueTimestamp=1,
        maxTimestamp=2,
        expirationTimestamp=3,
        tokenId="x",
    )
    assert image_of(token).tokens["x"]["expirationTimestamp"] == 3
    assert image_of(token, metadata(26, tokenId="x")).tokens == {}


def test_producer_ids_and_the_state_of_a_migration_are_the_last_ones():
    ids = [metadata(15, brokerId=1, brokerEpoch=1, nextProducerId=number) for number in (1000, 0)]
    image = image_of(*ids, metadata(21, zkMigrationState=2), metadata(20))
    assert (image.next_producer_id, image.zk_migration_state) == (0, 2)


def test_voters_and_the_version_of_raft_are_of_control_records():
    image = MetadataImage()
    feature = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    voter = Voter(voter_id=0, voter_directory_id=ID, endpoints=(), kraft_version_feature=feature)
    image.take_control(KRaftVersionRecord(kraft_version=0))
    image.take_control(VotersRecord(voters=(voter,)))
    assert (image.kraft_version, image.voters) == (0, VotersRecord(voters=(voter,)))


@pytest.mark.parametrize(
    "record",
    [
        metadata(9, topicId=OTHER),
        metadata(8, id=0, epoch=4),
        metadata(7, id=1, epoch=5),
        metadata(5, partitionId=1, topicId=ID, isr=[1]),
    ],
)
def test_a_record_that_does_not_fit_changes_nothing_and_is_told(record):
    before, found = image_of(topic(), partition(), broker()), image_of(topic(), partition(), broker(), record)
    (problem,) = found.problems
    assert "at offset 3" in problem
    found.problems.clear()
    assert found == before


def test_unknown_records_are_kept_as_they_are_up_to_a_bound():
    unknown, other = b"\x01\x63\x00abc", b"\x01\x64\x00"
    image = image_of(*[unknown] * (MOST_UNKNOWN + 5), other)
    assert image.unknown_count == MOST_UNKNOWN + 6
    assert len(image.unknown) == MOST_UNKNOWN + 1
    assert (image.unknown[0].type_id, image.unknown[0].data) == (99, unknown)
    assert image.unknown[-1].type_id == 100
