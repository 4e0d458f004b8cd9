"""The plugin of pytest: a broker for the tests of a session, its address, and a topic for each test.

`--kafka-bootstrap-servers` lets the same tests run against a broker of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kstore.testing.server import KafkaServer

_Scope = Any  # those of pytest.fixture
_BROKER, _KEEP = "kafka_bootstrap_servers", "kafka_keep_topics"
_RUNNING = pytest.StashKey["list[KafkaServer]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: a hook of pytest."""
    group = parser.getgroup("kafka", "Kafka, by kstore")
    help_ = (
        "host:port of a running broker, for kafka_bootstrap_servers and kafka_topic; default: a new server of kstore"
    )
    group.addoption("--kafka-bootstrap-servers", dest=_BROKER, metavar="SERVERS", help=help_)
    group.addoption("--kafka-keep-topics", dest=_KEEP, action="store_true", help="leave the topics of kafka_topic")
    parser.addini(_BROKER, help_)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Forget the faults that did not happen in a test, so that none happens to the next one: a hook of pytest."""
    for server in item.config.stash.get(_RUNNING, []):
        server.clear_faults()


def _broker(config: pytest.Config) -> str | None:
    """Return the address of the running broker that the tests are to use, if they are told one."""
    return config.getoption(_BROKER) or config.getini(_BROKER) or None


def kafka_server_factory(
    *, scope: _Scope = "session", name: str | None = None, **arguments: Any
) -> Callable[..., Iterator[KafkaServer]]:
    """Return a fixture that is a server of its own: `events = kafka_server_factory(scope="function", topics={"t": 3})`.

    Args: scope, name: as those of pytest.fixture; arguments: those of KafkaServer. Faults that did not happen in a
        test are forgotten after it.
    """

    @pytest.fixture(scope=scope, name=name)
    def server(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
        """A kstore.testing.KafkaServer with a root of its own, closed at the end of the fixture's scope."""
        from kstore.testing.server import KafkaServer

        with KafkaServer(**arguments) as started:
            running = request.config.stash.setdefault(_RUNNING, [])
            running.append(started)
            yield started
            running.remove(started)

    return server


kafka_server = kafka_server_factory(name="kafka_server")


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """host:port of the broker that --kafka-bootstrap-servers says, else of kafka_server."""
    address = _broker(request.config) or request.getfixturevalue("kafka_server").bootstrap_servers
    return str(address)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_bootstrap_servers: str) -> Iterator[str]:
    """A new topic of one partition, which is deleted after the test: the name of the test and random letters."""
    from kstore.testing.topics import temporary_topic

    keeps = request.config.getoption(_KEEP)
    with temporary_topic(kafka_bootstrap_servers, request.node.name, is_kept=keeps) as topic:
        yield topic
