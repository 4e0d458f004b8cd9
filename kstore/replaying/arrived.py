"""What arrived of a run that ended before it knew: its records are found in the cluster, so that none is sent twice."""

from __future__ import annotations

from kstore._core import Record
from kstore.log.damage import OnError
from kstore.log.log import Log
from kstore.replaying.cluster import Cluster
from kstore.replaying.flow import Flow
from kstore.replaying.wanted import Filter


def find_arrived(
    cluster: Cluster, flow: Flow, log: Log, sent: Filter, *, target_end_offset: int, on_error: OnError
) -> None:
    """Note in a flow which records the cluster has already, from where its state says that it goes on.

    What the earlier run sent there is, in its order and without gaps, what it read of the source from the same place
    on; between these may be records of other writers, which are passed over. So a record that is not the next one of
    the source is another writer's, and none of the source is taken for sent that is not there.
    Args: sent: the filter of the earlier run.
    Raises: as Filter.parts; ReplayError if the cluster cannot be read.
    Cost: reads the cluster's partition from there to its end.
    """
    if flow.target_offset >= target_end_offset:
        return
    parts = sent.parts(log, start_offset=flow.next_offset, end_offset=None, on_error=on_error, on_skip=_ignored)
    records = (record for part, _ in parts for record in part)
    expected = next(records, None)
    for there in cluster.records(flow.target, start_offset=flow.target_offset, end_offset=target_end_offset):
        if expected is None:
            return
        if _is_copy(there, expected):
            flow.found(expected, there.offset)
            expected = next(records, None)


def _is_copy(there: Record, record: Record) -> bool:
    return (
        there.key == record.key
        and there.value == record.value
        and there.timestamp_ms == record.timestamp_ms
        and there.headers == record.headers
    )


def _ignored(_skipped: object) -> None:
    """Do nothing: the run itself reports what it leaves out."""
