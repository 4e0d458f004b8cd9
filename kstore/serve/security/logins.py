"""Logins: what those who connect to a server are checked against, as its file of users has it now."""

from __future__ import annotations

import asyncio
import logging

from kstore.env import DEFAULT_ENV
from kstore.errors import KStoreError
from kstore.serve.config import SecurityConfig
from kstore.serve.security.rules import EVERYTHING, NOTHING, Access, accesses
from kstore.serve.security.scram import ScramCredential
from kstore.serve.security.users import Users, read_users

PLAIN = "PLAIN"
_logger = logging.getLogger("kstore.serve")


class Logins:
    """The users and the rules of a server, read again when their file has changed.

    Attributes: mechanisms: by which clients say who they are, none where they need not; failure_delay_s: until the
        answer to a wrong password; rights: how often the file was read, since each time any rights may change.
    Threads: the loop's; passwords are hashed in another one, one at a time, so that logins do not hold up the others.
    Raises: SecurityError, StorageError for a file of users that cannot be used.
    """

    def __init__(self, config: SecurityConfig, *, failure_delay_s: float) -> None:
        self.mechanisms = config.mechanisms
        self.failure_delay_s = failure_delay_s
        self._path = None if config.users is None else DEFAULT_ENV.absolute_path(config.users)
        self._status = None if self._path is None else DEFAULT_ENV.stat(self._path)
        self.rights = 0
        self._take(Users() if self._path is None else read_users(self._path))
        self._hashing = asyncio.Lock()

    def _take(self, users: Users) -> None:
        self._users = users
        self.rights += 1
        self._accesses = None if users.rules is None else accesses(users.rules, users.superusers)

    def refresh(self) -> None:
        """Read the file again if it has changed. One that cannot be used is logged, and the last one counts."""
        if self._path is None:
            return
        try:
            status = DEFAULT_ENV.stat(self._path)
            if status != self._status:
                self._status = status
                self._take(read_users(self._path))
        except KStoreError as error:
            _logger.error("the users are still those of before: %s", error)

    def credential(self, user: str, mechanism: str) -> ScramCredential:
        """Return a user's credential; of an unknown one, that of nobody."""
        return self._users.credential(user, mechanism)

    async def check_password(self, user: str, password: str) -> bool:
        """Whether a password is a user's. An unknown user takes as long."""
        credential = self._users.plain_credential(user)
        async with self._hashing:
            return await asyncio.to_thread(credential.is_of, password)

    def access_of(self, principal: str) -> Access:
        """Return what a principal may do."""
        return EVERYTHING if self._accesses is None else self._accesses.get(principal, NOTHING)
