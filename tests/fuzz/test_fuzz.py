"""Goal: on mutated batches the core sees what the reference sees, and inputs that once failed stay right.

Method: a seeded run of each fuzz target, bounded by count, and the kept corpus; `python -m tests.fuzz` runs longer.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.agreement import Disagreement, agree
from tests.fuzz.mutator import Mutator
from tests.fuzz.serving_targets import release
from tests.fuzz.targets import (
    LIMIT,
    TARGETS,
    check_batch,
    check_codec,
    check_columns,
    check_scan,
    run_case,
)
from tests.reference import codec as reference
from tests.reference.verdicts import Refused, reference_batch_verdict

ROOT = Path(__file__).parents[2]
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.hex"))
SEED = 20111
# At most about two seconds each; `make fuzz` runs each target for minutes.
CASES = {
    "batch": 2000,
    "columns": 400,
    "entry": 2000,
    "mixed columns": 200,
    "scan": 1250,
    "codec": 4000,
    "block": 4000,
    "builder": 800,
    "message writer": 800,
    "rewriting": 1000,
    "control": 4000,
    "control batch": 2000,
    "conversion": 750,
    "validation": 750,
    "packing": 1500,
    "avro": 400,
    "protobuf": 100,
    "json": 400,
    "protocol message": 1000,
    "protocol frame": 1000,
    "served request": 500,
    "served connection": 200,
    "tier": 100,
}

pytestmark = pytest.mark.fuzz


def test_every_target_has_its_share() -> None:
    assert CASES.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", list(TARGETS))
def test_core_and_reference_agree_on_mutated_input(name: str) -> None:
    try:
        for number in range(CASES[name]):
            run_case(name, seed=SEED, number=number)
    finally:
        release()


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_kept_input_stays_right(path: Path) -> None:
    data = bytes.fromhex(path.read_text())
    kind = path.stem.split("-")[0]
    if kind.startswith("codec"):
        check_codec(int(kind.removeprefix("codec")), data)
    else:
        for check in (check_batch, check_columns, check_scan):
            check(data)


def test_corpus_is_found() -> None:
    assert len(CORPUS) >= 4


def test_same_seed_makes_the_same_input() -> None:
    assert Mutator("x").log() == Mutator("x").log()
    assert Mutator("x").batch() != Mutator("y").batch()


def test_mutations_reach_every_class_and_leave_some_batches_whole() -> None:
    found: Counter[str] = Counter()
    for number in range(600):
        verdict = reference_batch_verdict(Mutator(number).batch(), limit=LIMIT)
        found[verdict.error if isinstance(verdict, Refused) else "read"] += 1
    assert found.keys() >= {
        "read",
        "CorruptRecordError",
        "InvalidRecordError",
        "DecompressionError",
        "UnsupportedMagicError",
    }
    assert min(found["read"], found["CorruptRecordError"], found["InvalidRecordError"]) > 40


def test_disagreement_is_raised_with_the_input() -> None:
    with pytest.raises(Disagreement, match="00ff") as caught:
        agree("batch", b"\x00\xff", found=1, expected=2)
    assert caught.value.data == b"\x00\xff"


def test_sound_batches_are_sound() -> None:
    for number in range(50):
        reference.read_batch(Mutator(f"sound {number}").sound(0))


def test_command_runs_one_case() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--target",
        "batch",
        "--seed",
        "1",
        "--number",
        "3",
        "--no-memory-limit",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["seed 1, targets batch", "1 cases, no disagreement"]
