"""A broker inside a test: a server of a new root, which does wrong what a test wants it to.

`kstore.testing.plugin` is the plugin of pytest, which is loaded in every run where kstore is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

if TYPE_CHECKING:
    from kstore.testing.plugin import kafka_server_factory as kafka_server_factory
    from kstore.testing.server import KafkaServer as KafkaServer

_MODULES = {"kstore.testing.plugin": ("kafka_server_factory",), "kstore.testing.server": ("KafkaServer",)}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
