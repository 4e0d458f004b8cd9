"""Goal: `kstore serve` says where it listens, serves until a signal ends it, and leaves a clean root.
Method: the command in a process of its own, a client that says what it is told."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest

import kstore as library
from kstore.cli.output import Output
from kstore.cli.serving.logs import logged
from kstore.cli.serving.properties import config_of, parse_config
from kstore.serve import GroupSettings, SecurityConfig, ServerConfig
from kstore.wire.messages import CreateTopicsRequest, MetadataRequest
from tests.cli.runner import runner, start
from tests.making.serving import RawClient


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


class Address:
    """What a client needs to know of a server."""

    def __init__(self, bootstrap_servers):
        self.bootstrap_servers = bootstrap_servers


@contextmanager
def serving(root, *options, by=signal.SIGTERM):
    """Run the command on a free port, and yield what it says and a client; end it by a signal, and check that it ends
    well."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start("serve", root, "--listen", "127.0.0.1:0", "--json", *options, **streams)
    try:
        said = json.loads(process.stdout.readline())
        with RawClient(Address(said["bootstrapServers"])) as client:
            yield said, client
            process.send_signal(by)
            out, said["log"] = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b"")
    finally:
        process.kill()
        process.communicate()


def created(client, topic):
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)]
    )
    return client.ask(request, version=5).topics[0].error_code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_root_is_served_until_a_signal_and_closed_cleanly(tmp_path, number):
    root = tmp_path / "root"
    with serving(root, by=number) as (said, client):
        assert said == {
            "root": str(root),
            "bootstrapServers": said["bootstrapServers"],
            "topics": 0,
            "isReadOnly": False,
        }
        assert created(client, "t") == 0
        with pytest.raises(library.LogLockedError):
            library.open_store(root, "a")
    assert said["log"] == b""
    assert (root / ".kafka_cleanshutdown").exists()
    assert library.open_store(root).topics == ("t",)


def test_a_root_that_is_only_read_is_served_beside_its_writer(tmp_path):
    with library.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        with serving(tmp_path / "root", "--read-only") as (said, client):
            assert said["isReadOnly"]
            answer = client.ask(MetadataRequest(topics=None), version=9)
            assert [topic.name for topic in answer.topics] == ["t"]
            assert created(client, "other") == 44


def test_requests_are_logged_as_json_where_that_is_wanted(tmp_path):
    with serving(tmp_path / "root", "--access-log", "--log-format", "json") as (said, client):
        client.ask(MetadataRequest(topics=[]), version=9)
        client.socket.sendall(b"\x00\x00\x00\x00")
        assert client.is_closed()
    access, closed = map(json.loads, said["log"].splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", access["time"])
    assert access.items() >= {"level": "INFO", "api": "Metadata", "version": 9, "client_id": "raw"}.items()
    assert (closed["level"], closed["logger"]) == ("WARNING", "kstore.serve")
    assert "a request of 0 bytes" in closed["message"]


def test_a_fault_of_the_server_is_logged_as_text_with_its_traceback(capsys):
    with logged(Output(), log_format="text", is_access_logged=False):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            logging.getLogger("kstore.serve.connection").exception("a request cannot be answered")
    said = capsys.readouterr().err
    assert "ERROR a request cannot be answered\nTraceback" in said
    assert "ZeroDivisionError" in said


def test_what_is_wrong_is_logged_as_text_with_the_time(tmp_path):
    with serving(tmp_path / "root") as (said, client):
        client.socket.sendall(b"\x00\x00\x00\x00")
        assert client.is_closed()
    (line,) = said["log"].decode().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\S+ WARNING connection of .* is closed: a request of 0 bytes", line)


def test_metrics_of_requests_and_of_the_store_are_served_by_http(tmp_path):
    pytest.importorskip("prometheus_client")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(tmp_path / "root", "--metrics", f"127.0.0.1:{port}") as (_, client):
        client.ask(MetadataRequest(topics=[]), version=9)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    assert 'kstore_serve_requests_total{api="Metadata"} 1.0' in text
    assert "kstore_serve_connections 1.0" in text
    assert "kstore_offline_log_directory_count" in text or "kstore_" in text.replace("kstore_serve_", "")


def test_a_port_that_is_taken_is_said(kstore, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        finished = kstore("serve", tmp_path / "root", "--listen", address)
    assert (finished.status, finished.out) == (1, "")
    assert finished.err.startswith(f"kstore: cannot listen on {address}: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen", "9092"), "--listen must be HOST:PORT, got '9092'"),
        (("--advertise", "host:70000"), "--advertise must be HOST:PORT, got 'host:70000'"),
        (("--config", "missing.properties"), "--config: there is no file missing.properties"),
    ],
)
def test_options_that_cannot_be_are_refused(kstore, tmp_path, options, said):
    finished = kstore("serve", tmp_path / "root", *options)
    assert (finished.status, finished.err) == (2, f"kstore: {said}\n")


def test_settings_are_read_by_the_names_of_a_broker():
    values, unknown = parse_config(
        "# a broker's\n"
        "process.roles=broker,controller\n"
        "controller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://:9093,PLAINTEXT://:19092\n"
        "advertised.listeners = PLAINTEXT://localhost:29092\n"
        "auto.create.topics.enable=FALSE\n"
        "num.partitions=4\n"
        "group.initial.rebalance.delay.ms=3000\n"
        "transaction.version=0\n"
    )
    assert config_of(values) == ServerConfig(
        host="0.0.0.0",
        port=19092,
        advertised_host="localhost",
        advertised_port=29092,
        creates_topics=False,
        partitions=4,
        transaction_version=0,
        groups=GroupSettings(initial_rebalance_delay_ms=3000),
    )
    assert unknown == ["process.roles"]


def test_what_acknowledgements_wait_for_and_the_longest_transaction_are_settings():
    values, unknown = parse_config("kstore.ack.of.all=flushed\ntransaction.max.timeout.ms=3600000\n")
    assert config_of(values) == ServerConfig(ack_of_all="flushed", max_transaction_timeout_ms=3_600_000)
    assert unknown == []


@pytest.mark.parametrize(
    ("option", "line", "ack"),
    [
        ((), "", "written"),
        (("--flush",), "", "flushed"),
        ((), "kstore.ack.of.all=flushed", "flushed"),
        (("--no-flush",), "kstore.ack.of.all=flushed", "written"),
    ],
)
def test_an_option_says_what_acknowledgements_wait_for_over_the_file(kstore, tmp_path, monkeypatch, option, line, ack):
    configs = []

    class Unserved:
        def __init__(self, _root, *, read_only, config):
            assert not read_only
            configs.append(config)

        def start(self):
            raise OSError("not served")

    monkeypatch.setattr("kstore.cli.serving.serve.Server", Unserved)
    file = tmp_path / "server.properties"
    file.write_text(line + "\n")
    kstore("serve", tmp_path / "root", "--config", file, *option)
    assert [config.ack_of_all for config in configs] == [ack]


@pytest.mark.parametrize(
    "line",
    [
        "num.partitions=many",
        "transaction.version=3",
        "auto.create.topics.enable=1",
        "listeners=9092",
        "num.partitions=99999999999",
        "transaction.max.timeout.ms=0",
        "kstore.ack.of.all=replicated",
    ],
)
def test_a_setting_that_is_none_is_refused_by_its_name(line):
    with pytest.raises(ValueError, match=f"^{line}: expected "):
        parse_config(line)


def test_settings_of_a_file_hold_and_others_are_named(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nauto.create.topics.enable=false\nlog.dirs=/tmp\n")
    with serving(tmp_path / "root", "--config", file) as (said, client):
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")])
        assert client.ask(request, version=9).topics[0].error_code == 3
    assert f"{file}: not settings of this server, ignored: log.dirs".encode() in said["log"]


@pytest.fixture
def users(kstore, tmp_path):
    """Return a function that runs `kstore serve-users` on a file; users are added with the password "secret"."""
    (tmp_path / "password").write_text("secret\n")

    def run(*options):
        more = ("--password-file", tmp_path / "password") if "--add" in options else ()
        return kstore("serve-users", tmp_path / "users.json", *options, *more)

    return run


def test_users_and_rules_are_added_listed_and_removed(users, tmp_path):
    assert users("--add", "admin", "--superuser") == (0, "", "kstore: admin is added\n")
    assert users("--add", "bob") == (0, "", "kstore: bob is added\n")
    assert users("--add", "bob").err == "kstore: bob has another password\n"
    assert users().out.splitlines()[2].split() == ["bob", "SCRAM-SHA-256,", "SCRAM-SHA-512", "everything"]
    assert users("--allow", "bob", "--topic", "orders", "--may", "read", "--may", "write").status == 0
    assert users("--allow", "bob", "--group", "g", "--may", "read").status == 0
    bob = users("--json").objects()[1]
    assert bob == {
        "name": "bob",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "isSuperuser": False,
        "rules": [
            {"resource": "topic", "prefix": "orders", "operations": ["read", "write"]},
            {"resource": "group", "prefix": "g", "operations": ["read"]},
        ],
    }
    assert users("--disallow", "bob", "--group", "g", "--may", "read").status == 0
    assert users().out.splitlines()[2].endswith("  topic orders*: read+write")
    assert users("--remove", "bob").status == 0
    assert [user["name"] for user in users("--json").objects()] == ["admin"]
    assert (tmp_path / "users.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--add", "a", "--remove", "b"), "--add, --remove, --allow and --disallow are four commands"),
        (("--superuser",), "--superuser and --password-file are for --add"),
        (("--allow", "bob"), "--allow and --disallow need --topic, --group or --transactional-id, and --may"),
        (("--may", "read"), "--allow and --disallow need --topic, --group or --transactional-id, and --may"),
        (
            ("--allow", "bob", "--topic", "a", "--group", "b", "--may", "read"),
            "a rule has one of --topic, --group and --transactional-id, and what its user --may do",
        ),
        (("--remove", "eve"), "{file} has no user eve"),
        (("--disallow", "bob", "--topic", "t", "--may", "read"), "{file} has no such rule for bob"),
        (("--add", ""), "a name must be of printable characters, found ''"),
    ],
)
def test_changes_of_users_that_cannot_be_are_refused(users, tmp_path, options, said):
    users("--add", "bob")
    finished = users(*options)
    assert (finished.status, finished.out) == (2, "")
    assert finished.err == f"kstore: {said.format(file=tmp_path / 'users.json')}\n"


def test_clients_of_the_command_log_in_with_what_serve_users_wrote(users, tmp_path):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    users("--add", "bob", "--superuser")

    def names_of(said, password):
        client = confluent_kafka.Consumer(
            {
                "bootstrap.servers": said["bootstrapServers"],
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "bob",
                "sasl.password": password,
                "group.id": "g",
            }
        )
        try:
            return sorted(client.list_topics(timeout=3).topics)
        except confluent_kafka.KafkaException:
            return None
        finally:
            client.close()

    with library.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
    with serving(tmp_path / "root", "--users", tmp_path / "users.json") as (said, _):
        assert names_of(said, "secret") == ["t"]
        assert names_of(said, "wrong") is None


def test_a_server_that_others_reach_starts_only_if_they_say_who_they_are(kstore, tmp_path):
    finished = kstore("serve", tmp_path / "root", "--listen", "0.0.0.0:0")
    assert finished.status != 0
    assert "0.0.0.0 can be reached from other machines" in finished.err
    assert "--insecure" in finished.err


def test_security_is_read_by_the_names_of_a_broker():
    config = config_of(
        parse_config(
            "ssl.keystore.location=server.pem\nssl.truststore.location=ca.pem\nssl.client.auth=required\n"
            "sasl.enabled.mechanisms=PLAIN, SCRAM-SHA-512\nmax.connections.per.ip=7\n"
        )[0]
    )
    assert config.security == SecurityConfig(
        certificate="server.pem",
        client_ca="ca.pem",
        client_certificates="required",
        sasl_mechanisms=("PLAIN", "SCRAM-SHA-512"),
    )
    assert config.limits.most_per_address == 7
