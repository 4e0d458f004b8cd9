"""A store served by Kafka's protocol: one node, which is the leader of all partitions of a root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

if TYPE_CHECKING:
    from kstore.coordinator.group.settings import ConsumerGroupSettings as ConsumerGroupSettings
    from kstore.coordinator.group.settings import GroupSettings as GroupSettings
    from kstore.serve.config import ConnectionLimits as ConnectionLimits
    from kstore.serve.config import SecurityConfig as SecurityConfig
    from kstore.serve.config import ServerConfig as ServerConfig
    from kstore.serve.server import Server as Server

_MODULES = {
    "kstore.coordinator.group.settings": ("ConsumerGroupSettings", "GroupSettings"),
    "kstore.serve.config": ("ConnectionLimits", "SecurityConfig", "ServerConfig"),
    "kstore.serve.server": ("Server",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
