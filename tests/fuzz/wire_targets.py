"""The invariants of Kafka's requests and answers: any bytes are read as the interpreter reads them, or refused by one
typed error; what was read is written again to bytes that are read alike."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from kstore.errors import InvalidRequestError, UnsupportedVersionError
from kstore.wire.compiler import codec
from kstore.wire.frames import Api, apis, decode_request, encode_request
from kstore.wire.messages import message_named
from tests.fuzz.agreement import agree
from tests.fuzz.message_mutator import MessageMutator
from tests.reference.wire import Maker, as_dict, compiled, interpreted

APIS = tuple(apis().values())
# What counts and lengths are, in both encodings.
LENGTHS = (
    *(struct.pack(">h", number) for number in (-2, -1, 0, 1, 2**15 - 1)),
    *(struct.pack(">i", number) for number in (-2, -1, 0, 1, 255, 2**20, 2**31 - 1)),
    *(bytes.fromhex(text) for text in ("00", "01", "7f", "8001", "ff7f", "ffffffff0f", "ffffffff7f", "808080808000")),
)


class WireMutator:
    """Makes requests and answers of any version, and damages them."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.api: Api = rng.choice(APIS)
        self.version = rng.choice(self.api.versions)

    def maker(self) -> Maker:
        is_flexible = self.version in self.api.flexible
        return Maker(self.random, version=self.version, is_flexible=is_flexible, most=self.random.choice((2, 3, 9)))

    def damaged(self, data: bytes) -> bytes:
        """Return bytes that differ in one to four places: other lengths, bytes, a part that is missing or twice."""
        out = bytearray(data)
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            at = self.random.randrange(len(out) + 1)
            kind = self.random.randrange(6)
            if kind == 0:
                out = out[:at]
            elif kind == 1:
                out[at : at + 1] = bytes((self.random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, self.random.randrange(256))),))
            elif kind == 2:
                length = self.random.choice(LENGTHS)
                out[at : at + len(length)] = length
            elif kind == 3:
                out[at:at] = self.random.choice(LENGTHS)
            elif kind == 4:
                del out[at : at + self.random.choice((1, 2, 4, 16))]
            else:
                out[at:at] = out[at : at + self.random.choice((1, 7, 60))] * self.random.choice((1, 1, 200))
        return bytes(out)


def message_case(mutator: MessageMutator) -> None:
    """The body of a request or an answer."""
    wire = WireMutator(mutator.random)
    cls = message_named(f"{wire.api.name}{mutator.random.choice(('Request', 'Response'))}")
    of_version = codec(cls, version=wire.version)
    data = wire.damaged(b"".join(of_version.encode(wire.maker().message(cls))))
    expected = interpreted(cls, data, version=wire.version)
    agree("message", data, found=compiled(cls, data, version=wire.version), expected=expected)
    if expected is not None:
        message, _ = of_version.decode(data)
        again = b"".join(map(bytes, of_version.encode(message)))
        agree(
            "message", data, found=as_dict(of_version.decode(again)[0], version=wire.version), expected=expected.fields
        )


def frame_case(mutator: MessageMutator) -> None:
    """A request with its header, as it comes from a client."""
    wire = WireMutator(mutator.random)
    body = wire.maker().message(message_named(f"{wire.api.name}Request"))
    client_id = mutator.random.choice((None, "", "client", "x" * 300))
    parts = encode_request(body, version=wire.version, correlation_id=1, client_id=client_id)
    data = wire.damaged(b"".join(map(bytes, parts))[4:])
    try:
        request = decode_request(data)
    except (InvalidRequestError, UnsupportedVersionError) as error:
        agree("frame", data, found=type(error).__module__, expected="kstore.errors")
        return
    expected = struct.unpack_from(">hhi", data)
    agree("frame", data, found=(request.api_key, request.version, request.correlation_id), expected=expected)


WIRE_TARGETS: dict[str, Callable[[MessageMutator], None]] = {
    "protocol message": message_case,
    "protocol frame": frame_case,
}
