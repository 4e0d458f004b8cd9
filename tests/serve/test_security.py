"""Goal: a client is served as whom it proved to be, by TLS, a certificate or a password, and by nothing else.
Method: librdkafka and aiokafka against servers in this process, and messages by a socket where no client would send
them."""

from __future__ import annotations

import asyncio
import ssl
import struct

import pytest

import kstore
from kstore.serve.config import ConnectionLimits, SecurityConfig, ServerConfig
from kstore.serve.connection import Connection
from kstore.serve.security.door import Door
from kstore.serve.security.users import add_user
from kstore.serve.server import Server
from kstore.wire.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.making.certificates import Authority
from tests.making.serving import RawClient, frame_of

confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD = "a secret, =2C and ü"
ALL = tuple(MECHANISMS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.signed("server", COMMON_NAME="server")


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    path = tmp_path_factory.mktemp("users") / "users.json"
    add_user(path, "alice", PASSWORD, iterations=4096)
    add_user(path, "comma,and=equals", "b", iterations=4096)
    return path


def secured(served, *, most_request_bytes=1 << 20, limits=None, **security):
    config = ServerConfig(
        port=0,
        most_request_bytes=most_request_bytes,
        security=SecurityConfig(**security),
        limits=limits or ConnectionLimits(failure_delay_ms=0),
    )
    return Server(served, config=config)


def librdkafka_settings(server, **settings):
    return {"bootstrap.servers": server.bootstrap_servers, "log_level": 0} | {
        name.replace("_", "."): value for name, value in settings.items()
    }


def round_trip(settings):
    """Write a record with librdkafka and read it; return its value."""
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", value=b"sent", partition=0)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        [message] = consumer.consume(1, 20)
        return message.value()
    finally:
        consumer.close()


def errors_of(settings):
    """Return the codes of the errors that librdkafka reports when it asks for the topics."""
    seen = []
    admin = confluent_kafka.Producer(settings | {"error_cb": lambda error: seen.append(error.code())})
    for _ in range(1000):
        if confluent_kafka.KafkaError._AUTHENTICATION in seen:
            break
        admin.poll(0.02)
    return set(seen)


def test_librdkafka_writes_and_reads_by_tls(served, authority, certificate):
    with secured(served, certificate=certificate.certificate, key=certificate.key) as server:
        settings = librdkafka_settings(server, security_protocol="ssl", ssl_ca_location=authority.path)
        assert round_trip(settings) == b"sent"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["sasl_plaintext", "sasl_ssl"])
def test_librdkafka_authenticates(served, authority, certificate, users, mechanism, protocol):
    tls = {"certificate": certificate.certificate, "key": certificate.key} if protocol == "sasl_ssl" else {}
    with secured(served, users=users, sasl_mechanisms=ALL, **tls) as server:
        settings = librdkafka_settings(
            server,
            security_protocol=protocol,
            ssl_ca_location=authority.path,
            sasl_mechanism=mechanism,
            sasl_username="alice",
            sasl_password=PASSWORD,
        )
        assert round_trip(settings) == b"sent"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)], ids=["password", "user"])
def test_librdkafka_is_told_that_it_is_not_who_it_says(served, users, mechanism, user, password):
    with secured(served, users=users, sasl_mechanisms=ALL) as server:
        settings = librdkafka_settings(
            server,
            security_protocol="sasl_plaintext",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        )
        assert confluent_kafka.KafkaError._AUTHENTICATION in errors_of(settings)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_aiokafka_authenticates(served, authority, certificate, users, mechanism, protocol):
    tls = {"certificate": certificate.certificate, "key": certificate.key} if protocol == "SASL_SSL" else {}
    client_tls = ssl.create_default_context(cafile=authority.path) if tls else None

    async def main(server):
        settings = {
            "bootstrap_servers": server.bootstrap_servers,
            "security_protocol": protocol,
            "ssl_context": client_tls,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }
        producer = aiokafka.AIOKafkaProducer(**settings)
        consumer = aiokafka.AIOKafkaConsumer(**settings, auto_offset_reset="earliest")
        async with producer, consumer:
            sent = await producer.send_and_wait("t", b"sent", partition=0)
            consumer.assign([aiokafka.TopicPartition("t", 0)])
            consumer.seek(aiokafka.TopicPartition("t", 0), sent.offset)
            return (await asyncio.wait_for(consumer.getone(), 20)).value

    with secured(served, users=users, sasl_mechanisms=ALL, **tls) as server:
        assert asyncio.run(main(server)) == b"sent"


def test_a_large_request_that_comes_with_the_end_of_a_handshake_is_answered(
    served, authority, certificate, monkeypatch
):
    came = asyncio.Event()
    updated, begun = Connection.buffer_updated, Door.secured

    def seen(self, nbytes):
        updated(self, nbytes)
        came.set()

    async def late(self, transport, protocol):
        secured = await begun(self, transport, protocol)
        await came.wait()
        return secured

    monkeypatch.setattr(Connection, "buffer_updated", seen)
    monkeypatch.setattr(Door, "secured", late)
    with secured(served, certificate=certificate.certificate, key=certificate.key) as server:
        body = frame_of(MetadataRequest(topics=[]), version=1, correlation_id=3)[4:]
        with RawClient(server, ssl.create_default_context(cafile=authority.path)) as client:
            client.socket.sendall(struct.pack(">i", len(body) + 100_000) + body + bytes(100_000))
            assert client.receive(3, version=1)[0] == 3


def test_large_requests_and_answers_pass_through_tls(served, authority, certificate):
    size = 5 << 20
    with secured(
        served, certificate=certificate.certificate, key=certificate.key, most_request_bytes=8 << 20
    ) as server:
        tls = ssl.create_default_context(cafile=authority.path)
        clients = [RawClient(server, tls) for _ in range(3)]
        # Bytes after a request are passed over.
        body = frame_of(MetadataRequest(topics=[]), version=1, correlation_id=3)[4:]
        frame = struct.pack(">i", len(body) + size) + body + bytes(size)
        # Pieces of several clients come in turns into the one buffer of the server.
        for start in range(0, len(frame), 1 << 18):
            for client in clients:
                client.socket.sendall(frame[start : start + (1 << 18)])
        for client in clients:
            assert client.receive(3, version=1)[0] == 3
            client.socket.close()
        served.log("t", 0).append(kstore.Record(value=bytes(900_000)))
        settings = librdkafka_settings(server, security_protocol="ssl", ssl_ca_location=authority.path)
        consumer = confluent_kafka.Consumer(settings | {"group.id": "g"})
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        [message] = consumer.consume(1, 20)
        assert len(message.value()) == 900_000
        consumer.close()


def test_tls_below_1_2_is_refused(served, authority, certificate):
    with secured(served, certificate=certificate.certificate, key=certificate.key) as server:
        old = ssl.create_default_context(cafile=authority.path)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            RawClient(server, old)


def test_bytes_that_are_no_tls_close_the_connection(served, certificate):
    with (
        secured(served, certificate=certificate.certificate, key=certificate.key) as server,
        RawClient(server) as plain,
    ):
        plain.send(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), version=4)
        with pytest.raises(ConnectionError):
            plain.receive(18, version=4)


def test_a_client_needs_a_certificate_where_one_is_required(served, authority, certificate):
    config = {
        "certificate": certificate.certificate,
        "key": certificate.key,
        "client_ca": authority.path,
        "client_certificates": "required",
    }
    known = authority.signed("client", COMMON_NAME="client")
    with secured(served, **config) as server:
        # By TLS 1.3 a client learns that it is refused when it reads.
        with (
            RawClient(server, ssl.create_default_context(cafile=authority.path)) as stranger,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            stranger.ask(MetadataRequest(topics=[]), version=12)
        settings = librdkafka_settings(server, security_protocol="ssl", ssl_ca_location=authority.path)
        own = {"ssl.certificate.location": known.certificate, "ssl.key.location": known.key}
        assert round_trip(settings | own) == b"sent"


@pytest.fixture
def guarded(served, users):
    with secured(served, users=users, sasl_mechanisms=ALL) as server:
        yield server


@pytest.fixture
def stranger(guarded):
    with RawClient(guarded) as client:
        yield client


def plain(client, message):
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version=1).error_code == 0
    return client.ask(SaslAuthenticateRequest(auth_bytes=message), version=2)


def test_only_the_words_of_authentication_are_answered_before_it(guarded, stranger):
    versions = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    assert stranger.ask(versions, version=4).error_code == 0
    stranger.send(MetadataRequest(topics=[]), version=12)
    assert stranger.is_closed()


@pytest.mark.parametrize(("size", "is_answered"), [(64 << 10, True), ((64 << 10) + 1, False)], ids=["most", "more"])
def test_a_request_before_authentication_is_small(stranger, size, is_answered):
    versions = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    body = frame_of(versions, version=4, correlation_id=3)[4:]
    stranger.socket.sendall(struct.pack(">i", size) + body + bytes(size - len(body)))
    if is_answered:
        assert stranger.receive(18, version=4)[0] == 3
    else:
        with pytest.raises(ConnectionError):
            stranger.receive(18, version=4)


def test_a_large_request_is_read_after_authentication(stranger):
    assert plain(stranger, b"\0alice\0" + PASSWORD.encode()).error_code == 0
    body = frame_of(MetadataRequest(topics=[]), version=1, correlation_id=3)[4:]
    stranger.socket.sendall(struct.pack(">i", len(body) + (64 << 10)) + body + bytes(64 << 10))
    assert stranger.receive(3, version=1)[0] == 3


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(stranger):
    answer = stranger.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version=1)
    assert (answer.error_code, answer.mechanisms) == (33, MECHANISMS)
    assert stranger.is_closed()


def test_a_handshake_of_version_0_closes_the_connection(stranger):
    stranger.send(SaslHandshakeRequest(mechanism="PLAIN"), version=0)
    assert stranger.is_closed()


def test_a_word_of_authentication_without_a_handshake_is_refused(stranger):
    answer = stranger.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), version=2)
    assert answer.error_code == 34
    assert stranger.is_closed()


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\0alice\0wrong", id="password"),
        pytest.param(b"\0nobody\0a", id="user"),
        pytest.param(b"bob\0alice\0" + PASSWORD.encode(), id="as-another"),
        pytest.param(b"\0alice", id="parts"),
        pytest.param(b"\0alice\0", id="no-password"),
        pytest.param(b"\0\0a", id="no-user"),
        pytest.param(b"\0\xff\0a", id="no-text"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_does_not_prove_a_user_is_answered_alike_and_ends_the_connection(stranger, message):
    answer = plain(stranger, message)
    text = "Authentication failed: invalid credentials with SASL mechanism PLAIN"
    assert (answer.error_code, answer.error_message) == (58, text)
    assert stranger.is_closed()


def test_a_client_may_authenticate_again_as_the_same_user_only(stranger):
    alice = b"\0alice\0" + PASSWORD.encode()
    assert (plain(stranger, alice).error_code, plain(stranger, alice).session_lifetime_ms) == (0, 0)
    assert stranger.ask(MetadataRequest(topics=[]), version=12).error_code == 0
    assert plain(stranger, b"\0comma,and=equals\0b").error_code == 58
    assert stranger.is_closed()


def test_where_nobody_has_to_authenticate_a_handshake_is_out_of_place(client):
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version=1).error_code == 34
    assert client.ask(SaslAuthenticateRequest(auth_bytes=b""), version=2).error_code == 34
    assert client.ask(MetadataRequest(topics=[]), version=12).error_code == 0


def test_a_server_notices_users_that_come_while_it_runs(served, users, tmp_path):
    path = tmp_path / "users.json"
    add_user(path, "alice", PASSWORD, iterations=4096)
    with secured(served, users=path, sasl_mechanisms=ALL) as server:
        add_user(path, "bob", "b", iterations=4096)
        server._now()._server._door.refresh()
        with RawClient(server) as client:
            assert plain(client, b"\0bob\0b").error_code == 0
        path.write_text("{")
        server._now()._server._door.refresh()
        with RawClient(server) as client:
            assert plain(client, b"\0bob\0b").error_code == 0


@pytest.mark.parametrize(
    ("host", "security", "is_allowed"),
    [
        pytest.param("127.0.0.1", {}, True, id="loopback"),
        pytest.param("localhost", {}, True, id="loopback-by-name"),
        pytest.param("::1", {}, True, id="loopback-6"),
        pytest.param("0.0.0.0", {}, False, id="all"),
        pytest.param("", {}, False, id="empty"),
        pytest.param("127.0.0.1.example.com", {}, False, id="name-like-loopback"),
        pytest.param("0.0.0.0", {"insecure": True}, True, id="insecure"),
        pytest.param("0.0.0.0", {"certificate": "c"}, False, id="tls-alone"),
        pytest.param(
            "0.0.0.0", {"certificate": "c", "client_ca": "a", "client_certificates": "requested"}, False, id="requested"
        ),
        pytest.param(
            "0.0.0.0", {"certificate": "c", "client_ca": "a", "client_certificates": "required"}, True, id="required"
        ),
        pytest.param("0.0.0.0", {"users": "u"}, True, id="scram"),
        pytest.param("0.0.0.0", {"users": "u", "sasl_mechanisms": ALL}, False, id="plain"),
        pytest.param("0.0.0.0", {"users": "u", "sasl_mechanisms": ALL, "certificate": "c"}, True, id="plain-by-tls"),
        pytest.param("0.0.0.0", {"users": "u", "sasl_mechanisms": ()}, False, id="users-without-mechanism"),
    ],
)
def test_a_server_listens_for_others_only_if_it_will_know_them(host, security, is_allowed):
    from kstore.serve.security.door import check_listening

    config = ServerConfig(host=host, security=SecurityConfig(**security))
    if is_allowed:
        check_listening(config)
    else:
        with pytest.raises(kstore.SecurityError, match="insecure"):
            check_listening(config)


def test_a_server_that_others_could_reach_does_not_start(served):
    with pytest.raises(kstore.SecurityError), Server(served, config=ServerConfig(host="0.0.0.0", port=0)):
        pass


@pytest.mark.parametrize(
    "security",
    [
        {"sasl_mechanisms": ("GSSAPI",)},
        {"client_certificates": "maybe"},
        {"key": "k"},
        {"certificate": "c", "client_certificates": "required"},
        {"certificate": "c", "client_ca": "a"},
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused(security):
    with pytest.raises(kstore.SecurityError):
        SecurityConfig(**security)


def test_a_certificate_that_is_not_there_is_named(served, tmp_path):
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(kstore.SecurityError, match=r"missing\.pem"), secured(served, certificate=missing):
        pass
