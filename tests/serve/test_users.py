"""Goal: a file of users says who there is and what they may do, for its owner alone, and nothing of a password.
Method: files that are made, changed, and damaged in each part."""

from __future__ import annotations

import json
import stat
import subprocess
import sys

import pytest

from kstore.env import DEFAULT_ENV, LockFile
from kstore.errors import SecurityError, StorageError
from kstore.serve.security import users as users_file
from kstore.serve.security.rules import Operation, Resource, Rule, accesses
from kstore.serve.security.tls import subject_name
from kstore.serve.security.users import add_user, allow, disallow, read_users, remove_user

READS_ORDERS = Rule(Resource.TOPIC, "orders-", frozenset({Operation.READ}))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "users.json"


def test_a_file_is_for_its_owner_and_has_no_password(path):
    assert add_user(path, "alice", "a long secret", iterations=4096)
    assert not add_user(path, "alice", "another secret", iterations=4096)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    assert [one.name for one in path.parent.iterdir()] == ["users.json"]
    users = read_users(path)
    assert {one: kept.is_of("another secret") for one, kept in users.credentials["alice"].items()} == {
        "SCRAM-SHA-256": True,
        "SCRAM-SHA-512": True,
    }


def test_a_change_keeps_the_rest(path):
    add_user(path, "alice", "a", is_superuser=True, iterations=4096)
    allow(path, "bob", READS_ORDERS)
    key = read_users(path).key_of_nobody
    add_user(path, "bob", "b", iterations=5000, mechanisms=["SCRAM-SHA-512"])
    users = read_users(path)
    assert (sorted(users.credentials), users.superusers) == (["alice", "bob"], {"alice"})
    assert users.rules == {"bob": [READS_ORDERS]}
    assert users.key_of_nobody == key
    assert users.credentials["bob"]["SCRAM-SHA-512"].iterations == 5000
    assert remove_user(path, "bob")
    assert not remove_user(path, "bob")
    users = read_users(path)
    assert (sorted(users.credentials), users.rules) == (["alice"], {})


def test_processes_that_change_a_file_wait_for_each_other(path):
    names = [f"user-{number}" for number in range(8)]
    rule = f"Rule(Resource.TOPIC, {str(path)!r}, frozenset({{Operation.READ}}))"
    program = (
        "import sys\n"
        "from kstore.serve.security.rules import Operation, Resource, Rule\n"
        "from kstore.serve.security.users import add_user, allow, disallow\n"
        f"path, rule = {str(path)!r}, {rule}\n"
        "for name in sys.argv[1:]:\n"
        "    add_user(path, name, 'secret', iterations=4096)\n"
        "    allow(path, name, rule)\n"
        "    disallow(path, name, rule)\n"
    )
    halves = [subprocess.Popen([sys.executable, "-c", program, *half]) for half in (names[:4], names[4:])]
    assert [half.wait(60) for half in halves] == [0, 0]
    users = read_users(path)
    assert sorted(users.credentials) == sorted(users.rules or ()) == names
    assert [one.name for one in path.parent.iterdir()] == ["users.json"], "no lock is left"


def test_a_file_that_others_have_locked_is_not_changed(path, monkeypatch):
    add_user(path, "alice", "a", iterations=4096)
    monkeypatch.setattr(users_file, "_MOST_WAIT_MS", 30)
    before, lock = path.read_bytes(), DEFAULT_ENV.lock_file(f"{path}.lock")
    for change in (
        lambda: add_user(path, "bob", "b", iterations=4096),
        lambda: remove_user(path, "alice"),
        lambda: allow(path, "alice", READS_ORDERS),
        lambda: disallow(path, "alice", READS_ORDERS),
    ):
        with pytest.raises(SecurityError, match=r"another process has locked .*users\.json\.lock"):
            change()
    assert path.read_bytes() == before
    lock.close()
    assert remove_user(path, "alice")
    assert [one.name for one in path.parent.iterdir()] == ["users.json"]


def test_a_lock_that_another_process_has_removed_is_taken_again(path, monkeypatch):
    looked, is_in_place = [], LockFile.is_in_place

    def looks(lock):
        looked.append(lock)
        if len(looked) == 1:
            DEFAULT_ENV.unlink(lock.path)
        return is_in_place(lock)

    monkeypatch.setattr(LockFile, "is_in_place", looks)
    assert add_user(path, "alice", "a", iterations=4096)
    assert len(looked) == 2


def test_rules_that_are_gone_leave_nobody_with_rights(path):
    allow(path, "bob", READS_ORDERS)
    assert disallow(path, "bob", READS_ORDERS)
    assert not disallow(path, "bob", READS_ORDERS)
    assert read_users(path).rules == {"bob": []}


@pytest.mark.parametrize(
    ("name", "password", "iterations"),
    [("", "a", 4096), ("a\n", "a", 4096), ("a", "", 4096), ("a", "a\0b", 4096), ("a", "a", 4095), ("a", "a", 10**7)],
)
def test_what_cannot_be_a_user_is_refused(path, name, password, iterations):
    with pytest.raises(SecurityError):
        add_user(path, name, password, iterations=iterations)
    assert not path.exists()


def changed(path, change):
    add_user(path, "alice", "a", iterations=4096)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda one: one.update(version=2), id="version"),
        pytest.param(lambda one: one.pop("version"), id="no-version"),
        pytest.param(lambda one: one.pop("users"), id="no-users"),
        pytest.param(lambda one: one.pop("key_of_nobody"), id="no-key"),
        pytest.param(lambda one: one.update(users=[]), id="users-list"),
        pytest.param(lambda one: one["users"].update({"": {}}), id="name"),
        pytest.param(lambda one: one["users"].update(bob={"MD5": {"iterations": 4096}}), id="mechanism"),
        pytest.param(lambda one: one["users"]["alice"]["SCRAM-SHA-256"].update(iterations=1), id="iterations"),
        pytest.param(lambda one: one["users"]["alice"]["SCRAM-SHA-256"].update(salt="?"), id="base64"),
        pytest.param(lambda one: one["users"]["alice"]["SCRAM-SHA-256"].pop("salt"), id="no-salt"),
        pytest.param(lambda one: one.update(rules={"a": [{"topic": "t"}]}), id="no-operations"),
        pytest.param(lambda one: one.update(rules={"a": [{"topic": "t", "operations": []}]}), id="none"),
        pytest.param(lambda one: one.update(rules={"a": [{"topic": "t", "operations": ["fly"]}]}), id="operation"),
        pytest.param(lambda one: one.update(rules={"a": [{"topic": 1, "operations": ["read"]}]}), id="prefix"),
        pytest.param(
            lambda one: one.update(rules={"a": [{"topic": "t", "group": "g", "operations": ["read"]}]}), id="two"
        ),
        pytest.param(lambda one: one.update(rules={"a": [{"cluster": "", "operations": ["admin"]}]}), id="cluster"),
        pytest.param(lambda one: one.update(rules={"a": {"topic": "t"}}), id="rules-object"),
    ],
)
def test_a_file_that_is_not_one_of_users_is_refused(path, change):
    changed(path, change)
    with pytest.raises(SecurityError, match=r"users\.json"):
        read_users(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000], ids=["empty", "cut", "list", "null", "deep"])
def test_what_is_no_object_is_refused(path, text):
    path.write_text(text)
    with pytest.raises(SecurityError):
        read_users(path)


def test_a_file_that_is_not_there_cannot_be_read(path):
    with pytest.raises(StorageError):
        read_users(path)


def test_a_rule_allows_its_operations_by_the_start_of_a_name_and_includes_describe():
    found = accesses({"bob": [READS_ORDERS]}, {"alice"})
    bob, alice = found["bob"], found["alice"]
    may = [
        bob.may(operation, Resource.TOPIC, name)
        for operation in (Operation.READ, Operation.DESCRIBE, Operation.WRITE, Operation.ADMIN)
        for name in ("orders-1", "orders", "other-orders-")
    ]
    assert may == [True, False, False] * 2 + [False] * 6
    assert not bob.may(Operation.READ, Resource.GROUP, "orders-1")
    assert (bob.may_some(Operation.READ, Resource.TOPIC), bob.may_some(Operation.WRITE, Resource.TOPIC)) == (
        True,
        False,
    )
    assert alice.may(Operation.ADMIN, Resource.CLUSTER, "")


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ({}, None),
        (None, None),
        ({"subject": ()}, None),
        (
            {"subject": ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "c"),))},
            r"CN=c,O=A\, B,C=DE",
        ),
        ({"subject": ((("commonName", "c"), ("userId", "u")),)}, "CN=c+UID=u"),
        ({"subject": ((("commonName", "#a "),),)}, r"CN=\#a\ "),
        ({"subject": ((("emailAddress", "a@b"),),)}, "emailAddress=a@b"),
    ],
)
def test_the_subject_of_a_certificate_is_named_as_in_kafka(subject, name):
    assert subject_name(subject) == name
