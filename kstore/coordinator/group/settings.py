"""The settings of the coordinators of groups, of both protocols; a server has them before it has a coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from kstore.config import DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of a coordinator of classic groups; Kafka's defaults but for the first.

    initial_rebalance_delay_ms: how long an empty group waits for more members after the first, again while they come;
        Kafka's default is 3000. min_session_timeout_ms, max_session_timeout_ms: what members may ask for. max_size: of
        members in a group. offsets_retention_ms: how long committed offsets are kept that no member uses;
        offsets_retention_check_interval_ms: how often it is looked for those to remove.
    """

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offsets_retention_ms: int = 7 * DAY_MS
    offsets_retention_check_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """The settings of a coordinator of groups of KIP-848; Kafka's names and defaults (group.consumer.*).

    session_timeout_ms: after which a member without a heartbeat is removed; heartbeat_interval_ms: between two
    heartbeats of a member; max_size: of members in a group.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 2**31 - 1
