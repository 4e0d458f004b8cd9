"""What is imported when it is first used: public names of a package (PEP 562), and the module logging."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from logging import Logger


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__` of a package, which imports the module of a name, its `__dir__`, and the names, sorted.

    Args: modules: the names of each module.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def member(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(module_of)
    return member, lambda: sorted({*vars(sys.modules[package]), *names}), names


class _LazyLogger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        from logging import getLogger

        return getattr(getLogger(self._name), name)


def lazy_logger(name: str) -> Logger:
    """Return a logger of the module logging, which a program that only reads then does not import."""
    return cast("Logger", _LazyLogger(name))
