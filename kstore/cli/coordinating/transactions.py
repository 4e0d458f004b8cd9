"""`kstore transactions`: open transactions, what their coordinators know of them, and their abortion."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column, printable
from kstore.cli.render import JSON_TEXT, plain_value, time_text
from kstore.errors import TransactionStateError
from kstore.log.files.names import CLUSTER_METADATA_TOPIC
from kstore.store.store import open_store
from kstore.store.transactions import NOT_HERE, abort_transaction, planned_markers, read_transactions

if TYPE_CHECKING:
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.coordinator.transaction.state import TransactionState
    from kstore.errors import KStoreError
    from kstore.store.store import Store, WritableStore
    from kstore.store.transactions import PlannedMarker, TransactionsReport, UndecidedTransaction
    from kstore.types import TopicPartition

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("last stable", is_number=True, rank=1),
    Column("first", is_number=True),
    Column("last", is_number=True, rank=4),
    Column("bytes", is_number=True, rank=3),
    Column("since", rank=6),
    Column("age", is_number=True),
    Column("producer", is_number=True),
    Column("epoch", is_number=True, rank=5),
    Column("transactional id"),
    Column("coordinator", rank=2),
    Column("hangs"),
)
ID_COLUMNS = (
    Column("transactional id"),
    Column("state"),
    Column("producer", is_number=True),
    Column("epoch", is_number=True, rank=1),
    Column("timeout ms", is_number=True, rank=3),
    Column("started", rank=2),
    Column("updated", rank=4),
    Column("partitions", wraps=True),
)
MARKER_COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("marker"),
    Column("offset", is_number=True),
    Column("producer", is_number=True),
    Column("epoch", is_number=True, rank=1),
    Column("coordinator epoch", is_number=True, rank=2),
    Column("transactional id"),
    Column("aborts from", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class TransactionsWanted:
    """The options of `transactions`; empty tuples select everything."""

    selection: PartitionSelection
    producer_ids: tuple[int, ...]
    transactional_ids: tuple[str, ...]
    start_offset: int | None
    only_hanging: bool
    shows_ids: bool
    aborts: bool
    is_dry: bool
    now_ms: int | None
    max_timeout_ms: int

    @property
    def names_transactions(self) -> bool:
        """Whether an option says which transactions are meant."""
        chosen = self.producer_ids or self.transactional_ids or self.only_hanging
        return bool(chosen) or self.start_offset is not None

    @property
    def names_one(self) -> bool:
        """Whether a partition, and a producer or the first offset are given, as kafka-transactions.sh abort needs."""
        has_partition = len(self.selection.topics) == 1 and len(self.selection.partitions) == 1
        return has_partition and (len(self.producer_ids) == 1 or self.start_offset is not None)

    def selects(self, found: UndecidedTransaction) -> bool:
        transaction, state = found.transaction, found.state
        return (
            (not self.only_hanging or found.hanging is not None)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.start_offset is None or transaction.first_offset == self.start_offset)
            and (not self.transactional_ids or (state is not None and state.transactional_id in self.transactional_ids))
        )


def run(wanted: TransactionsWanted, out: Output, *, is_json: bool) -> int:
    """Show the open transactions, or the transactional ids, or abort transactions; return the exit status.

    A partition that can't be read is reported and left out; nothing is aborted then.
    """
    _check(wanted)
    directories = wanted.selection.find()
    root = directories[0].root
    # The log of a KRaft quorum has no producers, and is not open for writing in a store.
    found = (directory.topic_partition for directory in directories)
    partitions = tuple(one for one in found if one.topic != CLUSTER_METADATA_TOPIC)
    if wanted.aborts and not wanted.is_dry:
        with open_store(root, "a") as store:
            return _abort(store, partitions, wanted, out, is_json=is_json)
    with open_store(root) as store:
        if wanted.aborts:
            return _abort(store, partitions, wanted, out, is_json=is_json)
        status, report = _read(store, () if wanted.shows_ids else partitions, wanted, out)
    if wanted.shows_ids:
        _show_ids(report, wanted, out, is_json=is_json)
    else:
        _show(report, wanted, out, is_json=is_json)
    return status


def _check(wanted: TransactionsWanted) -> None:
    if wanted.is_dry and not wanted.aborts:
        raise WrongUseError("--dry-run goes with --abort")
    if wanted.aborts and not wanted.names_transactions:
        raise WrongUseError(
            "--abort needs to know which: --hanging, --transactional-id ID, --producer-id N, or --start-offset N"
        )
    if wanted.aborts and wanted.shows_ids:
        raise WrongUseError("--abort and --ids exclude each other")


def _read(
    store: Store | WritableStore, partitions: tuple[TopicPartition, ...], wanted: TransactionsWanted, out: Output
) -> tuple[int, TransactionsReport]:
    status = EXIT_FINE

    def on_error(error: KStoreError) -> None:
        nonlocal status
        status = max(status, out.failure(error))

    report = read_transactions(
        store,
        partitions=partitions,
        now_ms=wanted.now_ms,
        max_transaction_timeout_ms=wanted.max_timeout_ms,
        on_error=on_error,
    )
    return status, report


def _abort(
    store: Store | WritableStore,
    partitions: tuple[TopicPartition, ...],
    wanted: TransactionsWanted,
    out: Output,
    *,
    is_json: bool,
) -> int:
    status, report = _read(store, partitions, wanted, out)
    if status != EXIT_FINE:
        out.notice("nothing was aborted, since not everything could be read")
        return status
    chosen = [found for found in report.undecided if wanted.selects(found)]
    if not chosen:
        raise WrongUseError("no open transaction is as the options say")
    try:
        # All of them before the first one is written.
        plans = [planned_markers(store, found, trusts_caller=wanted.names_one) for found in chosen]
        markers = _unique(plans) if wanted.is_dry else _written(store, chosen, plans, wanted)
    except TransactionStateError as error:
        raise WrongUseError(_with_advice(str(error), chosen)) from error
    for marker in markers if is_json else ():
        out.line(marker_json(marker, is_dry=wanted.is_dry))
    if not is_json:
        out.table(MARKER_COLUMNS, [marker_row(marker) for marker in markers])
        if wanted.is_dry:
            out.notice("dry run: nothing was changed")
    return EXIT_FINE


def _written(
    store: Store | WritableStore,
    chosen: list[UndecidedTransaction],
    plans: list[tuple[PlannedMarker, ...]],
    wanted: TransactionsWanted,
) -> list[PlannedMarker]:
    """Abort the transactions, one of several partitions once."""
    done: set[str] = set()
    markers: list[PlannedMarker] = []
    for found, plan in zip(chosen, plans, strict=True):
        transactional_id = plan[0].transactional_id
        if transactional_id is not None and transactional_id in done:
            continue
        markers += abort_transaction(_writable(store), found, trusts_caller=wanted.names_one)
        if transactional_id is not None:
            done.add(transactional_id)
    return markers


def _writable(store: Store | WritableStore) -> WritableStore:
    from kstore.store.store import WritableStore

    if not isinstance(store, WritableStore):
        raise TypeError("a store that is read can't be changed")
    return store


def _unique(plans: list[tuple[PlannedMarker, ...]]) -> list[PlannedMarker]:
    return list(dict.fromkeys(marker for plan in plans for marker in plan))


def _with_advice(message: str, chosen: list[UndecidedTransaction]) -> str:
    if any(found.coordinator == NOT_HERE for found in chosen):
        return f"{message}; if you know that none does, name it: --topic T --partition P --producer-id N"
    return message


def _show(report: TransactionsReport, wanted: TransactionsWanted, out: Output, *, is_json: bool) -> None:
    found = [one for one in report.undecided if wanted.selects(one)]
    for one in found if is_json else ():
        out.line(json_of(one, as_of_ms=report.as_of_ms))
    if is_json:
        return
    if found:
        out.table(COLUMNS, [row_of(one) for one in found])
        out.notice(f"ages are as of {time_text(report.as_of_ms)}")
    else:
        out.notice("no open transaction" + (" hangs" if wanted.only_hanging else ""))
    if not report.has_all_states and any(one.coordinator == NOT_HERE for one in found):
        out.notice("the root does not have all of __transaction_state: what hangs is not known of those 'not here'")


def _show_ids(report: TransactionsReport, wanted: TransactionsWanted, out: Output, *, is_json: bool) -> None:
    chosen = wanted.transactional_ids
    states = [state for state in report.states if not chosen or state.transactional_id in chosen]
    for state in states if is_json else ():
        out.line(JSON_TEXT(plain_value(state_fields(state))))
    if not is_json and states:
        out.table(ID_COLUMNS, [id_row(state) for state in states])
    missing = sorted(set(chosen) - {state.transactional_id for state in states})
    if missing:
        raise WrongUseError(f"no transactional id {' or '.join(missing)} in the root's __transaction_state")
    if not states and not is_json:
        out.notice("the root has no transactional id")


def row_of(found: UndecidedTransaction) -> list[str]:
    """Return the table cells of an open transaction, in the order of COLUMNS."""
    transaction, state = found.transaction, found.state
    topic, partition = found.topic_partition
    numbers = (found.last_stable_offset, transaction.first_offset, transaction.last_offset, transaction.size_in_bytes)
    return [
        printable(topic),
        str(partition),
        *map(str, numbers),
        time_text(found.start_ms),
        _age_text(found.age_ms),
        str(transaction.producer_id),
        str(transaction.producer_epoch),
        "-" if state is None else printable(state.transactional_id),
        found.coordinator if state is None else state.status.name,
        "-" if found.hanging is None else printable(found.hanging),
    ]


def id_row(state: TransactionState) -> list[str]:
    """Return the table cells of a transactional id, in the order of ID_COLUMNS."""
    return [
        printable(state.transactional_id),
        state.status.name,
        str(state.producer.producer_id),
        str(state.producer.epoch),
        str(state.timeout_ms),
        time_text(state.start_ms),
        time_text(state.last_update_ms),
        ", ".join(printable(str(one)) for one in sorted(state.partitions)) or "-",
    ]


def marker_row(marker: PlannedMarker) -> list[str]:
    """Return the table cells of a marker, in the order of MARKER_COLUMNS."""
    topic, partition = marker.topic_partition
    numbers = (marker.offset, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
    return [
        printable(topic),
        str(partition),
        "ABORT",
        *map(str, numbers),
        "-" if marker.transactional_id is None else printable(marker.transactional_id),
        "-" if marker.first_offset is None else str(marker.first_offset),
    ]


def json_of(found: UndecidedTransaction, *, as_of_ms: int) -> str:
    """Return the JSON object of an open transaction."""
    topic, partition = found.topic_partition
    transaction = found.transaction
    shown = {
        "topic": topic,
        "partition": partition,
        "last_stable_offset": found.last_stable_offset,
        "log_end_offset": found.log_end_offset,
        "holds_last_stable_offset": found.holds_last_stable_offset,
        "first_offset": transaction.first_offset,
        "last_offset": transaction.last_offset,
        "size_in_bytes": transaction.size_in_bytes,
        "first_timestamp": transaction.first_timestamp_ms,
        "last_timestamp": transaction.last_timestamp_ms,
        "start_timestamp": found.start_ms,
        "as_of": as_of_ms,
        "age_ms": found.age_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator_epoch": transaction.coordinator_epoch,
        "coordinator": found.coordinator,
        "state": None if found.state is None else state_fields(found.state),
        "is_hanging": found.hanging is not None,
        "hanging": found.hanging,
    }
    return JSON_TEXT(plain_value(shown))


def state_fields(state: TransactionState) -> dict[str, object]:
    """Return the fields of the JSON object of a transactional id."""
    return {
        "transactional_id": state.transactional_id,
        "state": state.status.name,
        "producer_id": state.producer.producer_id,
        "producer_epoch": state.producer.epoch,
        "timeout_ms": state.timeout_ms,
        "start_timestamp": state.start_ms,
        "last_update_timestamp": state.last_update_ms,
        "partitions": [one._asdict() for one in sorted(state.partitions)],
    }


def marker_json(marker: PlannedMarker, *, is_dry: bool) -> str:
    """Return the JSON object of a marker."""
    topic, partition = marker.topic_partition
    shown = {
        "topic": topic,
        "partition": partition,
        "marker": "ABORT",
        "offset": marker.offset,
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "transactional_id": marker.transactional_id,
        "first_offset": marker.first_offset,
        "written": not is_dry,
    }
    return JSON_TEXT(plain_value(shown))


def _age_text(age_ms: int) -> str:
    return "-" if age_ms < 0 else str(timedelta(seconds=age_ms // 1000))
