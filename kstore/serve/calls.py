"""Call: one request to a broker, as the function that answers it gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kstore.serve.security.sasl import Session
from kstore.wire.classes import Message

Body = TypeVar("Body", bound=Message)


class NoAnswerError(Exception):
    """A request is not answered, and its connection is closed, as a broker does where it has no other word for it."""


class Peer(NamedTuple):
    """A host and a port that clients connect to."""

    host: str
    port: int


@dataclass(slots=True)
class Call(Generic[Body]):
    """The body of a request, its version, where the client is to connect, and who it is."""

    body: Body
    version: int
    peer: Peer
    client_id: str
    client_host: str
    session: Session
