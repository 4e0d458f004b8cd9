"""franz-go's own tests of its client (pkg/kgo), against a server of kstore that runs as a command.

Its module comes from Go's module proxy into build/interop, where its tests are compiled, once.
Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.interop.clients.served import Served
from tests.interop.programs import BUILD, Missing, Unavailable, run
from tests.interop.store import Problems

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.3"
DIRECTORY = BUILD / f"franz-go-{VERSION}"
TEST_MINUTES = 20
RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+)", re.M)
# Most tests ask no broker; so many of those that ran do.
LEAST_PASSED = 100
# Tests that may fail, and why.
MAY_FAIL: dict[str, str] = {}
# Tests that are not run, and why.
MAY_SKIP = {
    **dict.fromkeys(
        (
            "TestShareGroup",
            "TestShareGroupETL",
            "TestShareGroupAckOnClose",
            "TestShareGroupOffsetsAdmin",
            "TestConsumeRegexShareSkipsInternal",
        ),
        "a server has no share groups",
    ),
    "TestIssueProduceBrokerTooOldFailsRecords": "wants a broker without Produce 3",
    "TestSCRAMAuth": "wants a second address; tests/serve/test_scram.py has librdkafka and others",
    "TestSCRAMAuthBadCredentials": "as TestSCRAMAuth",
    "TestOAuthAuth": "a server has no OAUTHBEARER",
}
ENVIRONMENT = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "50000", "KGO_LOG_LEVEL": "none"}


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    if shutil.which("go") is None:
        raise Missing("franz-go's tests need go: install it (apt-get install golang, brew install go)")
    program = compiled()
    server = Served(work / "root", work)
    with server.running() as address:
        said = tested(program, address)
    yield f"franz-go {VERSION} finds a server of kstore as its tests want a broker", unlike_the_lists(said)
    yield "the server has no fault", server.trouble()


def compiled() -> Path:
    """Return franz-go's tests as a program, in the directory of their sources."""
    program = DIRECTORY / "pkg" / "kgo" / "kgo.test"
    if not program.exists():
        shutil.rmtree(DIRECTORY, ignore_errors=True)
        BUILD.mkdir(parents=True, exist_ok=True)
        wanted = ("go", "mod", "download", "-json", f"{MODULE}@{VERSION}")
        done = subprocess.run(wanted, cwd=BUILD, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"go cannot fetch {MODULE}: {done.stdout}{done.stderr}")
        shutil.copytree(json.loads(done.stdout)["Dir"], DIRECTORY, copy_function=shutil.copyfile)
        for directory in (DIRECTORY, *DIRECTORY.rglob("*/")):
            directory.chmod(directory.stat().st_mode | stat.S_IWUSR)
        run("go", "test", "-c", "-o", str(program), "./pkg/kgo", cwd=DIRECTORY)
    return program


def tested(program: Path, address: str) -> str:
    """Return what the tests print."""
    arguments = ("-test.v", f"-test.timeout={TEST_MINUTES}m", "-test.skip=^Fuzz")
    environment = {**os.environ, **ENVIRONMENT, "KGO_SEEDS": address}
    return subprocess.run(
        (str(program), *arguments),
        cwd=program.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


def unlike_the_lists(said: str) -> Problems:
    """Say which tests failed or were left out that are not in the lists, and which are there without a need."""
    found = {name: result for result, name in RESULT.findall(said)}
    for result, allowed in (("FAIL", MAY_FAIL), ("SKIP", MAY_SKIP)):
        names = {name for name in found if found[name] == result}
        yield from (f"{result}: {name}" for name in sorted(names - allowed.keys()))
        yield from (f"{name} is in the list of {result}, and passed" for name in allowed if found.get(name) == "PASS")
    passed = sum(result == "PASS" for result in found.values())
    if passed < LEAST_PASSED:
        yield f"only {passed} tests passed: {said[-1000:]}"
