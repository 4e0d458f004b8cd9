"""All partitions of a root: Store and WritableStore, open_log, verify and recover, and what a store does by itself."""

from kstore.store.checks import VerificationReport, recover, verify
from kstore.store.opening import open_log
from kstore.store.store import Store, WritableStore, open_store
from kstore.store.table import Table
from kstore.store.transactions import (
    PlannedMarker,
    TransactionsReport,
    UndecidedTransaction,
    abort_transaction,
    planned_markers,
    read_transactions,
)
from kstore.store.upkeep.maintenance import MaintenanceIntervals, MaintenanceReport
from kstore.store.upkeep.prometheus import StoreCollector
from kstore.store.upkeep.recovering import RecoveredPartition

__all__ = [
    "MaintenanceIntervals",
    "MaintenanceReport",
    "PlannedMarker",
    "RecoveredPartition",
    "Store",
    "StoreCollector",
    "Table",
    "TransactionsReport",
    "UndecidedTransaction",
    "VerificationReport",
    "WritableStore",
    "abort_transaction",
    "open_log",
    "open_store",
    "planned_markers",
    "read_transactions",
    "recover",
    "verify",
]
