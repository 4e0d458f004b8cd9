"""librdkafka's own tests of its client, against servers of kstore that run as a command.

Its source is in the directory that the environment variable LIBRDKAFKA names; it is compiled into build/interop, once.
The tests that talk to a broker are taken, each number in a process of its own, since one that is late ends all.
Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.interop import broker
from tests.interop.clients.served import Served
from tests.interop.programs import BUILD, Missing, Unavailable, run
from tests.interop.store import Problems

VARIABLE = "LIBRDKAFKA"
DIRECTORY = BUILD / "librdkafka"
TOOLS = ("cmake", "make", "cc", "c++")
# Of the broker that the tests are told of: those that need a later one are left out.
KAFKA_VERSION = "4.1.0"
AT_ONCE, SECONDS = 2, 600
LEAST_RATIO = 62 / 64
SETTINGS = "auto.create.topics.enable={}\nnum.partitions=4\n"
# Of the tests, whose machines are fast.
PATIENCE = "test.timeout.multiplier=4"
# Kafka's own command, as the tests want it, from the jars of a broker.
KAFKA_TOPICS = '#!/bin/sh\nexec java -Xmx256m -cp "{}/*" org.apache.kafka.tools.TopicCommand "$@"\n'
# The tests' topics have three replicas by default; there is one node.
REPLICAS = ("rd_kafka_NewTopic_new(topicname, partition_cnt, replication_factor,",)
ONE_REPLICA = ("rd_kafka_NewTopic_new(topicname, partition_cnt, replication_factor > 1 ? 1 : replication_factor,",)
ENTRY = re.compile(r"^    _TEST\((\w+),\s*([^,)]+)(.*?)(?=^    _TEST\(|^#|\{NULL\})", re.M | re.S)
# What the summary of a run says of a test: its name, and why it failed.
FAILURE = re.compile(r"^\|\S* (\w+) +\| +FAILED \|[^|]*\|\S*m ?(.*?)(?:\x1b.*)?$", re.M)
SCENARIO = re.compile(r'\.scenario = "([a-z0-9,]+)"')
NEEDS_4_2 = "TEST_BRKVER(4, 2"
# Tests that reach no broker of ours, and why.
NO_BROKER = {
    "TEST_F_LOCAL": "asks no broker, or one of librdkafka's own",
    "TEST_F_KNOWN_ISSUE": "fails with every broker, as its source says",
    "TEST_F_MANUAL": "is for people",
}
NOT_OF_ONE_BROKER = {
    "0109_auto_create_topics": "wants an authorizer: forbids a topic by ACLs",
    "0115_producer_auth": "wants an authorizer: forbids topics by ACLs",
    "0119_consumer_auth": "wants an authorizer: forbids topics by ACLs",
    "0097_ssl_verify": "wants certificates of the cluster that librdkafka's own tools make; tests/serve has TLS",
    "0101_fetch_from_follower": "wants followers",
    "0126_oauthbearer_oidc": "wants a server of OpenID Connect",
    "0135_sasl_credentials": "wants a cluster with SASL; tests/serve/test_scram.py has librdkafka with SASL",
    "0139_offset_validation_mock": "asks a broker of librdkafka's own",
    "0142_reauthentication": "wants a cluster with SASL that ends sessions",
    "0150_telemetry_mock": "asks a broker of librdkafka's own",
}
# Tests that may fail, and why.
MAY_FAIL: dict[str, str] = {}
# Tests that say themselves that they can't be run, and why.
_RAPIDJSON = "needs RapidJSON, of which librdkafka's CMake build knows nothing"
MAY_SKIP = {
    "0053_stats": _RAPIDJSON,
    "0092_mixed_msgver": "writes records of V1, which no broker takes since 4.0",
    "0098_consumer_txn": _RAPIDJSON,
    "0110_batch_size": _RAPIDJSON,
}
# Those that only run in full.
NOT_QUICK = {"0082"}
# Parts of a test that are taken, by their names. Left out: what wants an authorizer (ACLs, authorized operations) or
# other passwords than a server has (SCRAM), and AlterConfigs of the broker itself, whose settings do not change.
PARTS = {
    "0081": (
        "AlterConsumerGroupOffsets",
        "CreatePartitions",
        "CreateTopics",
        "DeleteConsumerGroupOffsets",
        "DeleteGroups",
        "DeleteRecords",
        "DeleteTopics",
        "DescribeConfigs",
        "DescribeConsumerGroups",
        "ListConsumerGroupOffsets",
        "ListConsumerGroups",
        "ListOffsets",
        "unclean_destroy",
    )
}


@dataclass(frozen=True)
class Listed:
    """A test that talks to a broker. scenario: which settings its topics need."""

    name: str
    scenario: str

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    source = Path(os.environ.get(VARIABLE, ""))
    if not (source / "tests" / "test.c").exists():
        raise Missing(f"librdkafka's tests need its source: {VARIABLE} names the directory (github.com/confluentinc)")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise Missing(f"librdkafka's tests need {', '.join(missing)} (apt-get install cmake g++ libssl-dev zlib1g-dev)")
    program, tests = compiled(source), tests_of(source)
    topics = work / "kafka" / "bin" / "kafka-topics.sh"
    topics.parent.mkdir(parents=True)
    topics.write_text(KAFKA_TOPICS.format(broker.DIRECTORY / "lib"))
    topics.chmod(0o755)
    servers = {}
    with ExitStack() as running:
        for scenario, creates in (("default", "true"), ("noautocreate", "false")):
            (work / scenario).mkdir()
            server = Served(work / scenario / "root", work / scenario, SETTINGS.format(creates))
            running.enter_context(server.running())
            servers[scenario] = server
        groups = sorted({(test.number, test.scenario) for test in tests})
        with ThreadPoolExecutor(AT_ONCE) as pool:
            said = list(pool.map(lambda group: tested(program, work, servers[group[1]], *group), groups))
    states = {name: state for found in said for name, state in found.items()}
    passed = sum(states.get(test.name) == "PASSED" for test in tests)
    title = f"librdkafka finds a server of kstore as its tests want a broker, {passed} of {len(tests)}"
    yield title, unlike_the_lists(tests, states)
    for server in servers.values():
        yield "the server has no fault", server.trouble()


def compiled(source: Path) -> Path:
    """Return the tests as a program; topics with more than one replica have one."""
    program = DIRECTORY / "build" / "tests" / "test-runner"
    if not program.exists():
        shutil.rmtree(DIRECTORY, ignore_errors=True)
        shutil.copytree(source, DIRECTORY, ignore=shutil.ignore_patterns(".git", "build"))
        suite = DIRECTORY / "tests" / "test.c"
        text = suite.read_text()
        for old, new in zip(REPLICAS, ONE_REPLICA, strict=True):
            if text.count(old) != 1:
                raise Unavailable(f"{suite} is of another version: expected once {old}")
            text = text.replace(old, new)
        suite.write_text(text)
        # Topics are named after the files of the tests, which have to be names without directories.
        flags = f"-O1 -fmacro-prefix-map={DIRECTORY}/tests/="
        run(
            *("cmake", "-S", ".", "-B", "build", "-DRDKAFKA_BUILD_TESTS=ON", "-DRDKAFKA_BUILD_EXAMPLES=OFF"),
            *(f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}"),
            cwd=DIRECTORY,
        )
        run("make", "-C", "build", "-j2", "test-runner", cwd=DIRECTORY)
    return program


def tests_of(source: Path) -> list[Listed]:
    """Return the tests that concern one broker of the version, of the list in the source of their runner."""
    text = (source / "tests" / "test.c").read_text()
    listed = text[text.index("struct test tests[] = {") :]
    found = []
    for name, flags, more in ENTRY.findall(listed[: listed.index("{NULL}") + 6]):
        is_left_out = NEEDS_4_2 in more or name in NOT_OF_ONE_BROKER or NO_BROKER.keys() & set(re.split(r"\W+", flags))
        if not is_left_out:
            scenario = SCENARIO.search(more)
            found.append(Listed(name, scenario[1].partition(",")[0] if scenario else "default"))
    return found


def tested(program: Path, work: Path, server: Served, number: str, scenario: str) -> dict[str, str]:
    """Run the tests of a number, or the parts of it that are taken; return how each ended, by its name."""
    states: dict[str, str] = {}
    for part in PARTS.get(number, ("",)):
        for name, state in tested_part(program, work, server, Part(number, scenario, part)).items():
            if states.get(name, "PASSED") == "PASSED":
                states[name] = state
    return states


class Part(NamedTuple):
    """Tests of a number. part: the name of what is taken of them, "" for all."""

    number: str
    scenario: str
    part: str


def tested_part(program: Path, work: Path, server: Served, wanted: Part) -> dict[str, str]:
    report, log = (work / f"{'-'.join(wanted)}.{suffix}" for suffix in ("json", "log"))
    settings = work / f"{wanted.scenario}.conf"
    settings.write_text(f"metadata.broker.list={server.address}\ntest.topic.random=true\n{PATIENCE}\n")
    environment = {
        **os.environ,
        "TESTS": wanted.number,
        "TEST_REPORT": str(report),
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "RDKAFKA_TEST_CONF": str(settings),
        "BROKERS": server.address,
        "KAFKA_PATH": str(work / "kafka"),
    }
    if wanted.part:
        environment["SUBTESTS"] = f"do_test_{wanted.part}"
    how = ("-L", "-K", "-p1", "-s", wanted.scenario, *(() if wanted.number in NOT_QUICK else ("-Q",)))
    with log.open("w") as output, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            (str(program), *how),
            cwd=DIRECTORY / "tests",
            env=environment,
            stdout=output,
            stderr=output,
            timeout=SECONDS,
            check=False,
        )
    told = json.loads(report.read_text())["tests"] if report.exists() else {}
    states = {name: one["state"] for name, one in told.items() if name.startswith(f"{wanted.number}_")}
    states = {name: state for name, state in states.items() if state != "SKIPPED" or name in MAY_SKIP}
    reasons = dict(FAILURE.findall(log.read_text(errors="replace")))
    return {name: " ".join((state, *reasons.get(name, "").split())) for name, state in states.items()}


def unlike_the_lists(tests: list[Listed], states: dict[str, str]) -> Problems:
    """Say which tests did not pass that are not in the lists, and which are there without a need."""
    for test in tests:
        state = states.get(test.name, "did not end")
        allowed = MAY_FAIL.keys() | MAY_SKIP.keys()
        if state == "PASSED" and test.name in allowed:
            yield f"{test.name} is in a list, and passed"
        elif state != "PASSED" and test.name not in allowed:
            yield f"{test.name}: {state}"
    concerned = [test for test in tests if test.name not in allowed]
    passed = sum(states.get(test.name) == "PASSED" for test in concerned)
    if passed < LEAST_RATIO * len(concerned):
        yield f"only {passed} of {len(concerned)} tests passed"
