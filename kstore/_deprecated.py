"""Old names of arguments, and old values, that still work, with a DeprecationWarning; all are here, and go with 0.2.

A function or method that has old names is decorated with `with_old_names`, and is listed in the table of its kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_DESERIALIZERS = {"key_decoder": "key_deserializer", "value_decoder": "value_deserializer"}

# The old keywords of a function, each with the new one.
OLD_KEYWORDS = {
    "Log.read": _DESERIALIZERS,
    "Log.follow": _DESERIALIZERS,
    "RootLogs.follow": _DESERIALIZERS,
    "recover": {"mode": "recovery"},
}
# The arguments that a method took by position, in their old order, and takes as keywords only.
OLD_POSITIONS = {
    "Log.plan": ("max_bytes", "start_offset", "end_offset"),
}
# Values that said nothing else than others, each with the one to use.
OLD_VALUES = {"ack": {"buffered": "written"}}


def is_old_value(argument: str, value: object) -> bool:
    """Return whether the value of an argument is an old one; warn if it is."""
    new = OLD_VALUES[argument].get(value) if isinstance(value, str) else None
    if new is None:
        return False
    message = f"{argument}={value!r} does the same as {argument}={new!r}, and is taken only until 0.2"
    warnings.warn(message, DeprecationWarning, stacklevel=4)
    return True


def with_old_names(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return a function that takes its old arguments of the tables too, with a DeprecationWarning.

    Raises: TypeError, from a call, for an argument under its old and its new name.
    """
    name = function.__qualname__
    keywords, positions = OLD_KEYWORDS.get(name, {}), OLD_POSITIONS.get(name, ())

    @wraps(function)
    def with_old(*args: Any, **options: Any) -> _Result:
        old = {keywords[key]: (f"{key}=", options.pop(key)) for key in keywords.keys() & options.keys()}
        if positions and 1 < len(args) <= 1 + len(positions):
            old = {new: (f"{new} by position", value) for new, value in zip(positions, args[1:], strict=False)}
            args = args[:1]
        for new, (as_given, value) in old.items():
            if new in options:
                raise TypeError(f"{name}() takes {new}= once, got {as_given} too")
            options[new] = value
        if old:
            expected, given = ", ".join(f"{new}=" for new in old), ", ".join(as_given for as_given, _ in old.values())
            warnings.warn(f"{name}() takes {expected}; {given}: only until 0.2", DeprecationWarning, stacklevel=2)
        return function(*args, **options)

    return with_old
