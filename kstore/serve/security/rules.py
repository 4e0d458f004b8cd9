"""Rules: which topics, groups and transactional ids a principal may read, write and administer.

They are what is left of Kafka's ACLs (StandardAuthorizer) where there is one node: a rule allows, by the start of a
name, and nothing denies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

# Who has not said who it is (Kafka: KafkaPrincipal.ANONYMOUS).
ANONYMOUS = "ANONYMOUS"


class Operation(Enum):
    """What is done with a topic, a group or a transactional id.

    ADMIN is what Kafka has as CREATE, DELETE, ALTER, DESCRIBE_CONFIGS and ALTER_CONFIGS. Each of the others includes
    DESCRIBE.
    """

    DESCRIBE = "describe"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Resource(Enum):
    """What operations are done with. No rule names the cluster, which is left to superusers."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional_id"
    CLUSTER = "cluster"


class Rule(NamedTuple):
    """Operations that are allowed with what has a name that begins so; the empty prefix is that of all names."""

    resource: Resource
    prefix: str
    operations: frozenset[Operation]


class Access:
    """What one principal may do."""

    def __init__(self, rules: Iterable[Rule] = (), *, is_superuser: bool = False) -> None:
        self.is_superuser = is_superuser
        self._prefixes: dict[tuple[Resource, Operation], tuple[str, ...]] = {}
        for rule in rules:
            for operation in {*rule.operations, Operation.DESCRIBE}:
                key = (rule.resource, operation)
                self._prefixes[key] = (*self._prefixes.get(key, ()), rule.prefix)

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether an operation is allowed with what has this name."""
        return self.is_superuser or name.startswith(self._prefixes.get((resource, operation), ()))

    def may_some(self, operation: Operation, resource: Resource) -> bool:
        """Whether an operation is allowed with anything of a kind."""
        return self.is_superuser or (resource, operation) in self._prefixes


EVERYTHING, NOTHING = Access(is_superuser=True), Access()


def accesses(rules: Mapping[str, Iterable[Rule]], superusers: Iterable[str]) -> dict[str, Access]:
    """Return what each principal may do that has rules or is a superuser."""
    found = {principal: Access(of_principal) for principal, of_principal in rules.items()}
    return found | dict.fromkeys(superusers, EVERYTHING)
