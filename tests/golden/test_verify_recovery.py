"""Goal: verify names the side files that were damaged in the recovery sets, and none where another file was.
Method: the trees as the brokers were given them, one stated damage each."""

from __future__ import annotations

from pathlib import Path

from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.golden.recovery_cases import CLEAN_SET, NEW_SETS, Case, cases
from tests.making.collecting import over

# Damage -> the files that are named, by the ends of their names.
NAMED = {
    "txn-del": {"txnindex"},
    "txn-del-rp0": {"txnindex"},
    "txn-corrupt": {"txnindex"},
    "txn-odd": {"txnindex"},
    "snap-corrupt": {"snapshot"},
    "snap-empty": {"snapshot"},
    "snap-stray": {"snapshot"},
    "epoch-bogus": {"leader-epoch-checkpoint"},
    "epoch-field": {"log"},
}
# Where whole files of the log are gone or empty what lies beside them is named too.
EMPTIED = ("empty-", "missing-", "swap-")

CASES = [case for case in cases(*NEW_SETS, CLEAN_SET) if not case.name.startswith(EMPTIED)]


@over("case", CASES)
def test_side_file_is_named_only_where_it_was_damaged(case: Case) -> None:
    with open_log(case.directory("before")) as log:
        found = {Path(damage.path).name.rpartition(".")[2] for damage in verify(log)}
    if case.name in NAMED:
        assert found == NAMED[case.name]
    else:
        assert found <= {"log", "index", "timeindex"}
