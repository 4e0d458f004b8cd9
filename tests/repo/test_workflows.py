"""Goal: each workflow runs what the tree has, may do no more than it needs, and runs nobody's moving tag.
Method: parse every file of .github/workflows, and compare with the Makefile, pyproject.toml and the planted bugs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.making.collecting import over

pytestmark = pytest.mark.build

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(path.name for path in FOLDER.glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")
TARGET = re.compile(r"^\s*make ([\w-]+)", re.MULTILINE)
# What a job may be allowed besides reading; who needs it.
WRITES = {("release.yml", "publish"): {"id-token", "attestations"}}


@cache
def workflow(name: str) -> dict:
    parsed = yaml.safe_load((FOLDER / name).read_text())
    parsed["on"] = parsed.pop(True)  # YAML 1.1 takes the word for a boolean
    return parsed


def jobs() -> Iterator[tuple[str, str, dict]]:
    for name in WORKFLOWS:
        for job, body in workflow(name)["jobs"].items():
            yield name, job, body


def steps() -> Iterator[tuple[str, str, dict]]:
    for name, job, body in jobs():
        for step in body.get("steps", ()):
            yield name, job, step


def used() -> set[str]:
    """Return what the workflows run of others: actions, and workflows."""
    return {step["uses"] for *_, step in steps() if "uses" in step} | {
        body["uses"] for *_, body in jobs() if "uses" in body
    }


def test_every_action_is_pinned_by_the_digest_of_a_commit_and_names_its_version() -> None:
    local = {f"./.github/workflows/{name}" for name in WORKFLOWS}
    assert {action for action in used() - local if not PINNED.fullmatch(action)} == set()
    lines = [line for name in WORKFLOWS for line in (FOLDER / name).read_text().splitlines() if "@" in line]
    assert {line for line in lines if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)} == set()


def test_action_has_one_digest_in_all_workflows() -> None:
    pins = [action.split("@") for action in used() if "@" in action]
    assert len({name for name, _ in pins}) == len(pins)


@over("name", WORKFLOWS)
def test_permissions_are_given_and_only_those_to_read_for_all_jobs(name: str) -> None:
    assert set(workflow(name)["permissions"].values()) <= {"read"}, name


def test_job_may_write_only_what_it_needs() -> None:
    found = {
        (name, job): {what for what, level in body.get("permissions", {}).items() if level != "read"}
        for name, job, body in jobs()
    }
    assert {place: what for place, what in found.items() if what} == WRITES


def test_only_the_job_that_runs_no_code_of_the_tree_may_publish() -> None:
    publish = workflow("release.yml")["jobs"]["publish"]
    assert publish["environment"]["name"] == "pypi"
    assert [step for step in publish["steps"] if "run" in step or "checkout" in step["uses"]] == []
    assert [step["uses"].partition("@")[0] for step in publish["steps"]][-2:] == [
        "actions/attest-build-provenance",
        "pypa/gh-action-pypi-publish",
    ]


def test_checkout_leaves_no_token_in_the_tree() -> None:
    checkouts = [(name, job, step) for name, job, step in steps() if "actions/checkout@" in step.get("uses", "")]
    assert checkouts
    assert [place for *place, step in checkouts if step.get("with", {}).get("persist-credentials") is not False] == []


def test_targets_that_are_made_are_in_the_makefile_and_no_line_takes_an_expression() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = {target for *_, step in steps() for target in TARGET.findall(step.get("run", ""))}
    assert made - targets == set()
    assert made >= {"lint", "test", "debug", "interop", "planted", "release-check", "release-files"}
    run_makes = [step["run"] for *_, step in steps() if "make " in step.get("run", "")]
    assert [line for line in run_makes if "${{" in line] == []


def test_pythons_are_those_that_are_supported_and_tests_run_on_the_oldest_and_the_newest() -> None:
    supported = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    named = {str(step["with"]["python-version"]) for *_, step in steps() if "setup-python@" in step.get("uses", "")}
    tested = workflow("checks.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert named - {"${{ matrix.python }}"} <= set(supported)
    assert tested == [supported[0], supported[-1]]


def test_planted_bugs_of_every_room_are_run_each_week() -> None:
    lanes = workflow("lanes.yml")
    rooms = lanes["jobs"]["planted"]["strategy"]["matrix"]["room"]
    assert rooms == sorted(path.stem for path in (ROOT / "tests" / "planted").glob("*.diff"))
    nightly, weekly = (schedule["cron"] for schedule in lanes["on"]["schedule"])
    assert nightly.split()[2:] == ["*", "*", "*"]
    assert re.fullmatch(r"\* \* [0-6]", " ".join(weekly.split()[2:]))
    assert lanes["jobs"]["interop"]["if"] == f"github.event.schedule != '{weekly}'"
    assert lanes["jobs"]["planted"]["if"] == f"github.event.schedule != '{nightly}'"


def test_wheels_are_built_by_the_release_and_once() -> None:
    assert workflow("release.yml")["on"] == {"push": {"tags": ["v*"]}}
    assert workflow("release.yml")["jobs"]["wheels"]["uses"] == "./.github/workflows/wheels.yml"
    assert set(workflow("wheels.yml")["on"]) >= {"workflow_call"}
    assert "push" not in workflow("wheels.yml")["on"]
    needs = {job: body.get("needs") for job, body in workflow("release.yml")["jobs"].items()}
    assert needs == {"check": None, "wheels": "check", "files": "wheels", "publish": "files"}


def test_every_job_ends() -> None:
    called = {"wheels.yml"}  # its jobs are those of cibuildwheel, each with the time of its platform
    endless = [
        (name, job)
        for name, job, body in jobs()
        if name not in called and "steps" in body and "timeout-minutes" not in body
    ]
    assert endless == []
