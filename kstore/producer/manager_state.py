"""The states of a TransactionManager, and which may follow which. Layer 5."""

from __future__ import annotations

from enum import Enum


class TransactionManagerState(Enum):
    """Where a transactional producer is (Kafka: TransactionManager.State)."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"

    def may_follow(self, before: TransactionManagerState) -> bool:
        """Tell whether this state can be entered from another one."""
        return before in _BEFORE[self]

    @property
    def names_before(self) -> list[str]:
        """The names of the states from which it can be entered."""
        return sorted(state.name for state in _BEFORE[self])


_S = TransactionManagerState
_BEFORE: dict[TransactionManagerState, set[TransactionManagerState]] = {
    _S.UNINITIALIZED: set(),
    _S.INITIALIZING: {_S.UNINITIALIZED, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION},
    _S.READY: {_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION},
    _S.IN_TRANSACTION: {_S.READY},
    _S.COMMITTING_TRANSACTION: {_S.IN_TRANSACTION},
    _S.ABORTING_TRANSACTION: {_S.IN_TRANSACTION, _S.ABORTABLE_ERROR},
    _S.ABORTABLE_ERROR: {_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTABLE_ERROR},
    _S.FATAL_ERROR: set(_S),
}
