"""Goal: whoever has kstore and pytest has a broker in their tests, and can run the same tests against another one.
Method: pytest in a process of its own, which loads the plugin by the entry point, as that of a user does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.testing import KafkaServer

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "kstore.testing.plugin"

TESTS = """
from kstore.testing import kafka_server_factory

own = kafka_server_factory(scope="function", topics={"given": 3})
seen = set()

def test_a_topic_is_new(kafka_topic, kafka_bootstrap_servers):
    assert kafka_topic.startswith("test_a_topic_is_new-")
    seen.add((kafka_topic, kafka_bootstrap_servers))

def test_and_another_one_on_the_same_broker(kafka_topic, kafka_bootstrap_servers):
    ((topic, address),) = seen
    assert topic != kafka_topic
    assert address == kafka_bootstrap_servers
"""
OWN_TESTS = """
def test_the_server_of_the_session(kafka_server, kafka_topic, kafka_bootstrap_servers):
    assert kafka_server.bootstrap_servers == kafka_bootstrap_servers
    assert kafka_server.records(kafka_topic) == []
    ((topic, _),) = seen
    assert topic not in kafka_server.store.topics

def test_a_server_of_its_own(own, kafka_bootstrap_servers):
    assert own.bootstrap_servers != kafka_bootstrap_servers
    assert own.store.topics == ("given",)
"""


def printed_by_pytest(directory, *arguments):
    """Return the lines of pytest in a directory, with the plugin of the installed package."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(ROOT)
    ended = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout, ended.stderr
    return ended.stdout.splitlines()


def run_pytest(directory, *arguments):
    """Run the tests of a directory; return what pytest printed at last."""
    return printed_by_pytest(directory, *arguments)[-1]


def test_the_entry_point_names_the_plugin():
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(rf'entry-points.pytest11\]\nkstore = "{re.escape(PLUGIN)}"', text)


def test_the_plugin_imports_only_pytest():
    code = "import pytest, sys; seen = set(sys.modules); import kstore.testing.plugin; print(*set(sys.modules) - seen)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {"kstore", "kstore._lazy", "kstore.testing", PLUGIN}
    assert {name for name in ended.stdout.split() if name.partition(".")[0] == "kstore"} == expected
    assert "asyncio" not in ended.stdout.split()


def test_each_fixture_is_described(tmp_path):
    (tmp_path / "test_own.py").write_text(TESTS)
    shown = "\n".join(printed_by_pytest(tmp_path, "-v", "--fixtures", str(tmp_path)))
    for name in ("kafka_server", "kafka_bootstrap_servers", "kafka_topic", "own"):
        text = re.search(rf"^{name}\b.*\n    (.+)", shown, re.MULTILINE)
        assert text is not None, shown
        assert text[1] != "no docstring available"


def test_fixtures_are_a_server_its_address_and_a_topic_for_each_test(tmp_path):
    (tmp_path / "test_own.py").write_text(TESTS + OWN_TESTS)
    assert run_pytest(tmp_path).startswith("4 passed")


FAULTS = """
from kstore.testing import kafka_server_factory

shared = kafka_server_factory(scope="module")

def test_with_a_fault_that_does_not_happen(kafka_server, shared):
    kafka_server.fail_next("Produce", 3)
    shared.fail_next("Produce", 3, times=2)

def test_after_it(kafka_server, shared):
    assert (kafka_server.clear_faults(), shared.clear_faults()) == (0, 0)
"""


def test_faults_that_did_not_happen_are_forgotten_after_their_test(tmp_path):
    (tmp_path / "test_own.py").write_text(FAULTS)
    assert run_pytest(tmp_path).startswith("2 passed")


def test_the_same_tests_run_against_a_broker_that_is_there(tmp_path):
    (tmp_path / "test_own.py").write_text(TESTS)
    with KafkaServer() as broker:
        option = f"--kafka-bootstrap-servers={broker.bootstrap_servers}"
        assert run_pytest(tmp_path, option).startswith("2 passed")
        assert broker.store.topics == ()
        assert run_pytest(tmp_path, option, "--kafka-keep-topics").startswith("2 passed")
        assert len(broker.store.topics) == 2
        (tmp_path / "pytest.ini").write_text(f"[pytest]\nkafka_bootstrap_servers = {broker.bootstrap_servers}\n")
        assert run_pytest(tmp_path, "--kafka-keep-topics").startswith("2 passed")
        assert len(broker.store.topics) == 4


def test_a_topic_that_the_broker_refuses_is_an_error_with_its_words(tmp_path):
    from kstore.testing.topics import TopicRequestError, temporary_topic

    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=0123456789012345678901\n")
    refused = pytest.raises(TopicRequestError, match="POLICY_VIOLATION: topics of this root are not changed")
    with KafkaServer(tmp_path) as broker, refused, temporary_topic(broker.bootstrap_servers, "t", is_kept=False):
        raise AssertionError
