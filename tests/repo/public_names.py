"""The public names of kstore with their parameters: `python -m tests.repo.public_names` prints them.

`test_public_names.py` holds them against `public_names.txt`. A name or parameter may be added (run the command above
into that file); one that goes or moves breaks users.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import kstore
from kstore import aio, serve, testing


def parameters_of(function: Any) -> str:
    """Return the parameters by name and kind, with `=` where there is a default; "..." if Python can't tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "..."
    parts = []
    is_keyword_only = False
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            parts.append("*")
        is_keyword_only = is_keyword_only or parameter.kind is parameter.VAR_POSITIONAL
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(f"{star}{name}" + ("" if parameter.default is parameter.empty else "="))
    return ", ".join(parts)


def lines_of_class(name: str, kind: type) -> Iterator[str]:
    """Yield a line for each public method and property of a class, inherited ones of kstore included."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "kstore"]
    members = {member for base in bases for member in vars(base) if not member.startswith("_")}
    for member in sorted(members):
        found = inspect.getattr_static(kind, member)
        function = getattr(found, "__func__", found)
        is_called = callable(function) and not isinstance(found, property)
        yield f"{name}.{member}({parameters_of(function)})" if is_called else f"{name}.{member}"


def public_names() -> Iterator[str]:
    """Yield a line for each public name: a constant, a function with its parameters, or a class with its members."""
    yield from names_of(kstore, "")
    yield from names_of(aio, "aio.")
    yield from names_of(serve, "serve.")
    yield from names_of(testing, "testing.")


def names_of(module: ModuleType, prefix: str) -> Iterator[str]:
    for name in sorted(module.__all__):
        found = getattr(module, name)
        name = prefix + name
        if inspect.isclass(found):
            bases = [base.__name__ for base in found.__mro__[1:] if base.__name__ in kstore.__all__]
            yield f"class {name}({', '.join(bases)})"
            yield f"{name}({parameters_of(found)})"
            yield from lines_of_class(name, found)
        elif callable(found):
            yield f"{name}({parameters_of(found)})"
        else:
            yield name


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in public_names())
