"""`kstore serve-users`: the users of a server, and what they may do."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

import typer

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column
from kstore.env import locate
from kstore.errors import SecurityError
from kstore.log.files.checkpoints import read_text
from kstore.serve.security.rules import Operation, Resource, Rule
from kstore.serve.security.users import Users, add_user, allow, disallow, read_users, remove_user

if TYPE_CHECKING:
    from kstore.cli.output import Output

_MOST_PASSWORD_BYTES = 4096


class Wanted(NamedTuple):
    """What the options of the command say. prefixes: of the rule, by what it is about."""

    added: str | None
    removed: str | None
    allowed: str | None
    disallowed: str | None
    is_superuser: bool
    password_file: str | None
    prefixes: dict[str, str | None]
    operations: tuple[str, ...]

    def check(self) -> None:
        """Raise WrongUseError for options that do not go together."""
        changes = [one for one in (self.added, self.removed, self.allowed, self.disallowed) if one is not None]
        if len(changes) > 1:
            raise WrongUseError("--add, --remove, --allow and --disallow are four commands")
        if self.added is None and (self.is_superuser or self.password_file is not None):
            raise WrongUseError("--superuser and --password-file are for --add")
        if self._is_rule != bool(self.allowed or self.disallowed):
            raise WrongUseError("--allow and --disallow need --topic, --group or --transactional-id, and --may")

    @property
    def _is_rule(self) -> bool:
        return bool(self.operations) or any(prefix is not None for prefix in self.prefixes.values())

    def rule(self) -> Rule:
        """Return the rule that is added or removed.  Raises: WrongUseError if it is not whole."""
        given = [(name, prefix) for name, prefix in self.prefixes.items() if prefix is not None]
        if len(given) != 1 or not self.operations:
            raise WrongUseError("a rule has one of --topic, --group and --transactional-id, and what its user --may do")
        ((name, prefix),) = given
        return Rule(Resource(name), prefix, frozenset(map(Operation, self.operations)))


def run(path: str, out: Output, wanted: Wanted, *, is_json: bool) -> int:
    """Change the file, or list what it has; return the exit status."""
    wanted.check()
    try:
        if wanted.added is not None:
            password = _password(wanted.password_file)
            is_new = add_user(path, wanted.added, password, is_superuser=wanted.is_superuser)
            out.notice(f"{wanted.added} {'is added' if is_new else 'has another password'}")
        elif wanted.removed is not None:
            if not remove_user(path, wanted.removed):
                raise WrongUseError(f"{path} has no user {wanted.removed}")
        elif wanted.allowed is not None:
            allow(path, wanted.allowed, wanted.rule())
        elif wanted.disallowed is not None:
            if not disallow(path, wanted.disallowed, wanted.rule()):
                raise WrongUseError(f"{path} has no such rule for {wanted.disallowed}")
        else:
            _list(read_users(path), out, is_json=is_json)
    except SecurityError as error:
        if error.path is not None:
            raise
        raise WrongUseError(str(error)) from error
    return EXIT_FINE


def _password(file: str | None) -> str:
    if file is None:
        if sys.stdin is None or not sys.stdin.isatty():
            raise WrongUseError("a password is asked for on a terminal; elsewhere, give --password-file FILE")
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    env, path = locate(file)
    text = read_text(path, env, max_bytes=_MOST_PASSWORD_BYTES)
    if text is None:
        raise WrongUseError(f"--password-file: there is no file {file}")
    return text.partition("\n")[0].removesuffix("\r")


def _list(users: Users, out: Output, *, is_json: bool) -> None:
    names = sorted({*users.credentials, *users.superusers, *(users.rules or {})})
    rows = []
    for name in names:
        mechanisms, is_superuser = sorted(users.credentials.get(name, ())), name in users.superusers
        rules = (users.rules or {}).get(name, [])
        if is_json:
            facts = {"name": name, "mechanisms": mechanisms, "isSuperuser": is_superuser}
            of_user = [
                {"resource": one.resource.value, "prefix": one.prefix, "operations": _names(one)} for one in rules
            ]
            out.line(json.dumps(facts | {"rules": of_user}))
        may_all = is_superuser or users.rules is None
        shown = [f"{one.resource.value} {one.prefix}*: {'+'.join(_names(one))}" for one in rules]
        rows.append([name, ", ".join(mechanisms), "everything" if may_all else ", ".join(shown)])
    if not is_json:
        out.table([Column("user"), Column("mechanisms"), Column("may", wraps=True)], rows)


def _names(rule: Rule) -> list[str]:
    return sorted(operation.value for operation in rule.operations)
