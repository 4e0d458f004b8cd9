"""Public names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


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
