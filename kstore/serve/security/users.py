"""The file of users: credentials, rules and superusers, as JSON; `kstore serve-users` changes it.

    {"version": 1, "key_of_nobody": BASE64, "superusers": [NAME],
     "users": {NAME: {"SCRAM-SHA-256": {"salt": BASE64, "iterations": N, "stored_key": BASE64, "server_key": BASE64}}},
     "rules": {NAME: [{"topic" | "group" | "transactional_id": PREFIX, "operations": ["read" | "write" | "admin"]}]}}

No password is in it. Names of rules are those of users, and the subjects of client certificates. Without "rules" each
client that proved who it is may do everything.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kstore.env import DEFAULT_ENV, LockFile, StrPath, lines_of, open_foreign
from kstore.env.process import random_bytes
from kstore.errors import SecurityError, json_fault
from kstore.log.files.checkpoints import replace_file
from kstore.serve.security.rules import Operation, Resource, Rule
from kstore.serve.security.scram import (
    DEFAULT_ITERATIONS,
    LEAST_ITERATIONS,
    MECHANISMS,
    MOST_ITERATIONS,
    ScramCredential,
    credential_of,
    credential_of_nobody,
)

VERSION = 1
_MOST_LINE_BYTES = 1 << 20
_MOST_WAIT_MS, _WAIT_MS = 10_000, 20
_KEY_BYTES = 32
_KEYS = ("salt", "stored_key", "server_key")
_NAMED = (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)


@dataclass
class Users:
    """The content of a file of users.

    Attributes: credentials: of each user, by mechanism; rules: None where all may do everything; key_of_nobody: of
        which the salts of unknown users are made.
    """

    credentials: dict[str, dict[str, ScramCredential]] = field(default_factory=dict)
    superusers: set[str] = field(default_factory=set)
    rules: dict[str, list[Rule]] | None = None
    key_of_nobody: bytes = field(default_factory=lambda: random_bytes(_KEY_BYTES))

    def credential(self, user: str, mechanism: str) -> ScramCredential:
        """Return a user's credential; of a user without one, that of nobody."""
        found = self.credentials.get(user, {}).get(mechanism)
        if found is not None:
            return found
        others = (one[mechanism].iterations for one in self.credentials.values() if mechanism in one)
        iterations = next(others, DEFAULT_ITERATIONS)
        return credential_of_nobody(user, mechanism, key=self.key_of_nobody, iterations=iterations)

    def plain_credential(self, user: str) -> ScramCredential:
        """Return the credential by which a password is checked that comes plain."""
        mechanism = next(iter(self.credentials.get(user, ())), "SCRAM-SHA-256")
        return self.credential(user, mechanism)


def read_users(path: StrPath) -> Users:
    """Return what a file of users has.  Raises: SecurityError if it is malformed; StorageError if it is unreadable."""
    text = DEFAULT_ENV.absolute_path(path)
    with open_foreign(text) as file:
        content = b"".join(lines_of(file, text, most_bytes=_MOST_LINE_BYTES))
    try:
        found = json.loads(content)
        if found["version"] != VERSION:
            raise ValueError(f"expected version {VERSION}, found {found['version']!r}")
        rules = found.get("rules")
        return Users(
            {_name(name): _credentials(keys) for name, keys in found["users"].items()},
            {_name(name) for name in found.get("superusers", ())},
            None if rules is None else {_name(name): [_rule(one) for one in some] for name, some in rules.items()},
            base64.b64decode(found["key_of_nobody"], validate=True),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SecurityError(f"malformed file of users {text}: {_reason(error)}", path=text) from error


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return json_fault(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name or any(not character.isprintable() for character in name):
        raise ValueError(f"a name must be of printable characters, found {name!r}")
    return name


def _credentials(found: Mapping[str, Any]) -> dict[str, ScramCredential]:
    credentials = {}
    for mechanism, keys in found.items():
        iterations = _checked_iterations(keys["iterations"])
        if mechanism not in MECHANISMS:
            raise ValueError(f"unknown mechanism {mechanism!r}")
        salt, stored_key, server_key = (base64.b64decode(keys[key], validate=True) for key in _KEYS)
        credentials[mechanism] = ScramCredential(mechanism, salt, iterations, stored_key, server_key)
    return credentials


def _checked_iterations(iterations: Any) -> int:
    if type(iterations) is not int or not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ValueError(f"iterations must be {LEAST_ITERATIONS} to {MOST_ITERATIONS}, found {iterations!r}")
    return iterations


def _rule(found: Mapping[str, Any]) -> Rule:
    (resource,) = (one for one in _NAMED if one.value in found)
    operations = frozenset(Operation(name) for name in found["operations"])
    if not isinstance(found[resource.value], str) or len(found) != 2 or not operations:
        raise ValueError(f"a rule has a prefix and operations, found {dict(found)!r}")
    return Rule(resource, found[resource.value], operations)


def write_users(path: StrPath, users: Users) -> None:
    """Write a file of users in place of the one that is there, for its owner alone.  Raises: StorageError."""
    content: dict[str, Any] = {
        "version": VERSION,
        "key_of_nobody": base64.b64encode(users.key_of_nobody).decode(),
        "superusers": sorted(users.superusers),
        "users": {
            name: {
                mechanism: {key: base64.b64encode(getattr(one, key)).decode() for key in _KEYS}
                | {"iterations": one.iterations}
                for mechanism, one in credentials.items()
            }
            for name, credentials in sorted(users.credentials.items())
        },
    }
    if users.rules is not None:
        content["rules"] = {
            name: [
                {rule.resource.value: rule.prefix, "operations": sorted(one.value for one in rule.operations)}
                for rule in rules
            ]
            for name, rules in sorted(users.rules.items())
        }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    replace_file(DEFAULT_ENV.absolute_path(path), text.encode(), is_private=True)


@contextmanager
def _alone(path: StrPath) -> Iterator[None]:
    """Hold the lock of a file of users while it is read and changed: FILE.lock beside it, which is there only then.

    Raises: SecurityError if others hold it for 10 s; StorageError.
    """
    place = DEFAULT_ENV.absolute_path(path)
    deadline_ms = DEFAULT_ENV.monotonic_ms() + _MOST_WAIT_MS
    while (lock := _lock(f"{place}.lock")) is None:
        if DEFAULT_ENV.monotonic_ms() >= deadline_ms:
            raise SecurityError(f"another process has locked {place}.lock for {_MOST_WAIT_MS} ms", path=place)
        DEFAULT_ENV.sleep_ms(_WAIT_MS)
    try:
        yield
    finally:
        # While it is locked: who locks a file of this name afterwards has another one.
        DEFAULT_ENV.unlink(lock.path)
        lock.close()


def _lock(path: str) -> LockFile | None:
    lock = DEFAULT_ENV.lock_file(path)
    if lock is not None and not lock.is_in_place():
        lock.close()
        return None
    return lock


def _known(path: StrPath) -> Users:
    return Users() if DEFAULT_ENV.stat(DEFAULT_ENV.absolute_path(path)) is None else read_users(path)


def add_user(
    path: StrPath,
    name: str,
    password: str,
    *,
    is_superuser: bool = False,
    mechanisms: Iterable[str] = tuple(MECHANISMS),
    iterations: int = DEFAULT_ITERATIONS,
) -> bool:
    """Add a user to a file, which is made if it is not there, or give one another password; return whether it is new.

    Args: is_superuser: may do everything, whatever the rules; a user who is one stays one.
    Threads: processes and threads that change a file wait for each other, here and in the other changes.
    Raises: SecurityError for a name, password or number of iterations that cannot be; StorageError.
    """
    if not password or "\0" in password:
        raise SecurityError("a password must have characters, and none of them NUL")
    try:
        _name(name)
        made = {one: credential_of(password, one, iterations=_checked_iterations(iterations)) for one in mechanisms}
    except ValueError as error:
        raise SecurityError(str(error)) from error
    with _alone(path):
        users = _known(path)
        is_new = name not in users.credentials
        users.credentials[name] = made
        if is_superuser:
            users.superusers.add(name)
        write_users(path, users)
    return is_new


def remove_user(path: StrPath, name: str) -> bool:
    """Remove a user and its rules from a file; return whether there was one.

    A server notices within seconds; who is connected stays so, without rights where there are rules.
    """
    with _alone(path):
        users = read_users(path)
        is_known = users.credentials.pop(name, None) is not None or name in users.superusers
        users.superusers.discard(name)
        if users.rules is not None:
            is_known |= users.rules.pop(name, None) is not None
        if is_known:
            write_users(path, users)
    return is_known


def allow(path: StrPath, principal: str, rule: Rule) -> None:
    """Add a rule to a file.  After the first one, principals without a rule may do nothing."""
    with _alone(path):
        users = _known(path)
        users.rules = users.rules or {}
        rules = users.rules.setdefault(principal, [])
        if rule not in rules:
            rules.append(rule)
        write_users(path, users)


def disallow(path: StrPath, principal: str, rule: Rule) -> bool:
    """Remove a rule from a file; return whether it was there."""
    with _alone(path):
        users = read_users(path)
        rules = (users.rules or {}).get(principal, [])
        is_known = rule in rules
        if is_known:
            rules.remove(rule)
            write_users(path, users)
    return is_known
