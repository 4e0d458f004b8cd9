"""Goal: `kstore metadata` shows the state of a cluster by the paths of kafka-metadata-shell, and no secrets.
Method: metadata written record by record, and that of brokers; the output compared."""

from __future__ import annotations

import json
import uuid

import pytest

from kstore.log.files.root_files import id_text
from tests.cli.runner import runner
from tests.golden.sets import unpack
from tests.making.cluster import BEGIN, config, metadata, topic, write_metadata, write_snapshot

ID = uuid.UUID(int=300)


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def records():
    lists = {"replicas": [0], "isr": [0], "removingReplicas": [], "addingReplicas": []}
    numbers = {"partitionId": 0, "leader": 0, "leaderEpoch": 3, "partitionEpoch": 4}
    return [
        metadata(12, name="metadata.version", featureLevel=21),
        topic("orders", ID),
        metadata(3, topicId=ID, **lists, **numbers),
        config("orders", "retention.ms", "5"),
        metadata(4, resourceType=4, resourceName="0", name="listener.name.x.ssl.keystore.password", value="secret"),
        metadata(4, resourceType=4, resourceName="", name="log.retention.ms", value="7"),
        metadata(11, name="u", mechanism=1, salt=b"secret", storedKey=b"secret", serverKey=b"secret", iterations=4096),
        metadata(
            14,
            entity=[{"entityType": "user", "entityName": "a(b"}, {"entityType": "client-id", "entityName": None}],
            key="producer_byte_rate",
            value=1.5,
            remove=False,
        ),
    ]


@pytest.fixture
def root(tmp_path):
    directory = write_metadata(tmp_path, records())
    (directory / "quorum-state").write_text(
        '{"leaderId":0,"leaderEpoch":4,"currentVoters":[{"voterId":0}],"data_version":0}'
    )
    return tmp_path


def test_the_root_of_the_tree_names_its_parts(kstore, root):
    run = kstore("metadata", root)
    assert (run.status, run.err) == (0, "")
    assert "topics/" in run.out.splitlines()


def test_a_path_shows_what_is_there(kstore, root):
    assert kstore("metadata", root, "topics").out == "orders/\n"
    assert kstore("metadata", root, "topics/orders/id").out == f"{id_text(ID)}\n"
    assert kstore("metadata", root, "topics/orders").out == f"id\t{id_text(ID)}\n0/\n"
    shown = dict(line.split("\t") for line in kstore("metadata", root, "topics/orders/0").out.splitlines())
    assert (shown["leader"], shown["leaderEpoch"], shown["isr"]) == ("0", "3", "[0]")
    assert kstore("metadata", root, "configs").out == "BROKER/\nBROKER:0/\nTOPIC:orders/\n"
    assert kstore("metadata", root, "configs/TOPIC:orders/retention.ms").out == "5\n"
    assert kstore("metadata", root, "configs/BROKER").out == "log.retention.ms\t7\n"


@pytest.mark.parametrize("path", ["/image/topics/byName/orders/0", f"topics/byId/{id_text(ID)}/0", "topics/orders/0/"])
def test_the_paths_of_the_shell_name_the_same(kstore, root, path):
    assert kstore("metadata", root, path).out == kstore("metadata", root, "topics/orders/0").out


def test_a_path_that_is_not_there_is_wrong_use_with_what_is(kstore, root):
    run = kstore("metadata", root, "topics/order/0")
    assert run.status == 2
    assert "no 'order' in topics; did you mean topics/orders?" in run.err
    run = kstore("metadata", root, "topics/orders/id/x")
    assert (run.status, "no 'x' in topics/orders/id" in run.err) == (2, True)
    assert "it has BROKER, BROKER:0, TOPIC:orders" in kstore("metadata", root, "configs/zzz").err


def test_no_secret_is_shown(kstore, root):
    for arguments in ((), ("--tree",), ("--json",)):
        run = kstore("metadata", root, *arguments)
        assert run.status == 0
        assert "secret" not in run.out
        assert "c2VjcmV0" not in run.out
    assert kstore("metadata", root, "configs/BROKER:0").out == "listener.name.x.ssl.keystore.password\t[redacted]\n"
    assert kstore("metadata", root, "scram", "--json").objects() == [
        {"SCRAM-SHA-256": {"u": {"iterations": 4096}}, "SCRAM-SHA-512": {}}
    ]


@pytest.mark.parametrize(("value", "shown"), [(float("nan"), "NaN"), (float("-inf"), "-Infinity"), (1e-7, 1e-07)])
def test_a_quota_that_is_no_number_is_text_in_json(kstore, tmp_path, value, shown):
    entity = [{"entityType": "user", "entityName": "u"}]
    write_metadata(tmp_path, [metadata(14, entity=entity, key="k", value=value, remove=False)])
    assert kstore("metadata", tmp_path, "clientQuotas", "--json").objects() == [{"user(u)": {"k": shown}}]
    assert kstore("metadata", tmp_path, "clientQuotas/user(u)/k").out == f"{shown}\n"


def test_a_tree_is_indented(kstore, root):
    assert kstore("metadata", root, "configs", "--tree").out.splitlines() == [
        "BROKER:",
        "  log.retention.ms: 7",
        "BROKER:0:",
        "  listener.name.x.ssl.keystore.password: [redacted]",
        "TOPIC:orders:",
        "  retention.ms: 5",
    ]


def test_json_is_one_object_of_the_path(kstore, root):
    (shown,) = kstore("metadata", root, "--json").objects()
    assert shown["provenance"]["offset"] == 7
    assert shown["quorum"] == {"leaderId": 0, "leaderEpoch": 4, "kraftVersion": None, "voters": {"0": None}}
    assert shown["clientQuotas"] == {"clientId(<default>)_user(a\\(b)": {"producer_byte_rate": 1.5}}
    assert kstore("metadata", root, "topics/orders/0", "--json").objects() == [shown["topics"]["orders"]["0"]]


def test_the_state_at_an_offset_is_shown(kstore, root):
    assert kstore("metadata", root, "topics", "--at", 1).out == ""
    assert kstore("metadata", root, "topics", "--at", 2).out == "orders/\n"
    run = kstore("metadata", root, "--at", 9)
    assert run.status == 2
    assert "ends at offset 8, got 9" in run.err


def test_a_snapshot_or_the_directory_alone_will_do(kstore, root):
    directory = root / "__cluster_metadata-0"
    assert kstore("metadata", directory, "topics").out == "orders/\n"
    path = write_snapshot(directory, records(), end_offset=8)
    assert kstore("metadata", path, "topics").out == "orders/\n"
    assert kstore("metadata", path, "provenance/offset").out == "7\n"
    assert kstore("metadata", path, "--at", 1).status == 2
    bootstrap = path.rename(root / "bootstrap.checkpoint")
    assert kstore("metadata", bootstrap, "topics").out == "orders/\n"


def test_a_root_without_metadata_is_wrong_use(kstore, tmp_path):
    run = kstore("metadata", tmp_path)
    assert run.status == 2
    assert "has no __cluster_metadata-0" in run.err


def test_what_may_not_be_committed_is_told(kstore, tmp_path):
    directory = write_metadata(
        tmp_path, [*records(), metadata(BEGIN, name="m"), b"\x01\x63\x00", metadata(9, topicId=ID)]
    )
    run = kstore("metadata", tmp_path, "topics")
    assert (run.status, run.out) == (0, "orders/\n")
    assert "records from offset 0 to 10 may not be committed" in run.err
    assert "a metadata transaction (m) has not ended" in run.err
    assert "records of unknown types or versions: 1, the first at offset 9: unknown type 99" in run.err
    (unknown,) = kstore("metadata", tmp_path, "unknown", "--json").objects()[0]
    assert (unknown["offset"], unknown["type_id"], unknown["data"]) == (9, 99, "AWMA")
    directory.joinpath("quorum-state").write_text("x")
    assert kstore("metadata", tmp_path, "topics").status == 1


@pytest.mark.parametrize("packed_set", ["main-3.9.2", "main-4.4.0"])
def test_the_metadata_of_brokers_has_their_topics_and_configs(kstore, packed_set):
    packed = unpack(packed_set, "trees") / "data"
    (shown,) = kstore("metadata", packed, "--json").objects()
    directories = {path.name for path in packed.iterdir() if path.is_dir()} - {"__cluster_metadata-0"}
    found = {f"{name}-{number}" for name, fields in shown["topics"].items() for number in fields if number != "id"}
    assert found == directories
    for name, fields in shown["topics"].items():
        assert f"topic_id: {fields['id']}" in (packed / f"{name}-0" / "partition.metadata").read_text()
        assert fields["0"]["replicas"] == [1]
    assert shown["unknown"] == []
    assert json.loads(json.dumps(shown["configs"]["TOPIC:__consumer_offsets"]))["cleanup.policy"] == "compact"
