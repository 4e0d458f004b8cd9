"""KeyRing: the RSA keys that open the data keys of encrypted segments, and the decryption of chunks and indexes.

A ring has paths of PEM files and never their content, so that it can go to other processes. A data key is wrapped by
RSA-OAEP with SHA3-512, also for MGF1, which `cryptography` refuses; the padding is taken off here, with hashlib.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import ColumnBuffer
from kstore.config import LogConfig, config_or_default
from kstore.env import DEFAULT_ENV, StrPath
from kstore.errors import KStoreError, TierKeyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers

IV_BYTES = 12
TAG_BYTES = 16
ENCRYPTION_BYTES = IV_BYTES + TAG_BYTES
_KEY_BYTES = 32
_AES_BLOCK_BYTES = 16
_MOST_PEM_BYTES = 1 << 20
_MOST_MODULUS_BITS = 16384
_OF_ANOTHER_KEY = "its padding is not that of this key"
_HASH_BYTES = hashlib.sha3_512().digest_size


class DataKey(NamedTuple):
    """What a manifest says of a segment's encryption; key_id is None in manifests from before July 2023."""

    key_id: str | None
    wrapped: bytes
    aad: bytes


class KeyRing(NamedTuple):
    """The private keys of a tier: (key id, path of a PEM file) each; max_bytes: the most that is decrypted at once.

    Threads: immutable; can be pickled.
    """

    paths: tuple[tuple[str, str], ...] = ()
    max_bytes: int = LogConfig().max_decrypted_bytes

    @classmethod
    def of(cls, keys: Mapping[str, StrPath] | None, config: LogConfig | None = None) -> KeyRing:
        """Return a ring of paths by key id."""
        paths = sorted((str(key_id), DEFAULT_ENV.absolute_path(path)) for key_id, path in (keys or {}).items())
        return cls(tuple(paths), config_or_default(config).max_decrypted_bytes)

    def open(self, key: DataKey, *, path: str) -> bytes:
        """Return a segment's AES key.

        Args: path: of its manifest, for errors. A key without an id is tried with each of the ring.
        Raises: TierKeyError if the ring does not have the key, its file cannot be read, or it is another key.
        Cost: some 10 ms for a key of 2048 bits, once.
        """
        pems = [one for key_id, one in self.paths if key.key_id in (None, key_id)]
        if not pems and key.key_id is not None:
            # Where ids come from options of Spark, which does not keep their case.
            pems = [one for key_id, one in self.paths if key_id == key.key_id.lower()]
        if not pems:
            known = ", ".join(repr(key_id) for key_id, _ in self.paths) or "none"
            what = "its key" if key.key_id is None else f"its key {key.key_id!r}"
            raise TierKeyError(
                f"{path} is encrypted: expected the private key file of {what} among tier_keys, found {known}",
                path=path,
                key_id=key.key_id,
            )
        faults = []
        for pem in pems:
            try:
                return _unwrapped(pem, key.wrapped)
            except _UnwrapError as error:
                faults.append(f"that in {pem}: {error}")
        named = "" if key.key_id is None else f" {key.key_id!r}"
        raise TierKeyError(
            f"{path}: the private key{named} does not open the segment's data key: {'; '.join(faults)}",
            path=path,
            key_id=key.key_id,
        )


class Sealed(NamedTuple):
    """The key and the additional data of an encrypted segment, by which each of its chunks and indexes is decrypted."""

    key: bytes
    aad: bytes

    def open(self, data: bytes | memoryview) -> memoryview:
        """Return the plain bytes of a chunk or an index, in memory that is used again when no view is left of it.

        Raises: ValueError if there are fewer bytes than IV and tag take, or the tag is not that of these bytes.
        Cost: one pass, without the GIL.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        view = memoryview(data)
        size = len(view) - ENCRYPTION_BYTES
        if size < 0:
            raise ValueError(f"expected {ENCRYPTION_BYTES} bytes or more of IV and tag, found {len(view)}")
        # Not AESGCM, which keeps the GIL and returns new memory, whose pages each chunk would have to be given.
        decryptor = Cipher(AES(self.key), GCM(bytes(view[:IV_BYTES]), bytes(view[-TAG_BYTES:]))).decryptor()
        decryptor.authenticate_additional_data(self.aad)
        plain = memoryview(ColumnBuffer(size + _AES_BLOCK_BYTES))
        decryptor.update_into(view[IV_BYTES:-TAG_BYTES], plain)
        try:
            decryptor.finalize()
        except InvalidTag:
            raise ValueError("the authentication tag (AES-GCM) does not match the bytes") from None
        return plain[:size]


class _UnwrapError(Exception):
    """A data key is not what a private key wraps."""


@lru_cache(maxsize=1024)
def _unwrapped(pem: str, wrapped: bytes) -> bytes:
    numbers = _private_numbers(pem)
    modulus = numbers.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    cipher = int.from_bytes(wrapped, "big")
    if len(wrapped) != size:
        raise _UnwrapError(f"expected {size} bytes, found {len(wrapped)}")
    if cipher >= modulus:
        raise _UnwrapError(_OF_ANOTHER_KEY)
    first, second = pow(cipher, numbers.dmp1, numbers.p), pow(cipher, numbers.dmq1, numbers.q)
    block = second + numbers.q * ((first - second) * numbers.iqmp % numbers.p)
    key = _without_padding(block.to_bytes(size, "big"))
    if len(key) != _KEY_BYTES:
        raise _UnwrapError(f"expected a key of {_KEY_BYTES} bytes, found {len(key)}")
    return key


def _without_padding(block: bytes) -> bytes:
    """Return the message in a block of OAEP with an empty label.

    Source: RFC 8017, 7.1.2.
    """
    if len(block) < 2 * _HASH_BYTES + 2:
        raise _UnwrapError("the RSA key is too short for OAEP with SHA3-512")
    masked_seed, masked = block[1 : 1 + _HASH_BYTES], block[1 + _HASH_BYTES :]
    seed = _xor(masked_seed, _mask(masked, _HASH_BYTES))
    data = _xor(masked, _mask(seed, len(masked)))
    label, rest = data[:_HASH_BYTES], data[_HASH_BYTES:]
    message = rest.lstrip(b"\0")
    is_right = hmac.compare_digest(label, hashlib.sha3_512().digest())
    if block[0] or not is_right or not message.startswith(b"\x01"):
        raise _UnwrapError(_OF_ANOTHER_KEY)
    return message[1:]


def _mask(seed: bytes, size: int) -> bytes:
    """MGF1 with SHA3-512."""
    blocks = (hashlib.sha3_512(seed + at.to_bytes(4, "big")).digest() for at in range(-(-size // _HASH_BYTES)))
    return b"".join(blocks)[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def _private_numbers(pem: str) -> RSAPrivateNumbers:
    try:
        content = DEFAULT_ENV.read_file(pem, max_bytes=_MOST_PEM_BYTES)
    except KStoreError as error:
        raise TierKeyError(f"cannot read the private key: {error}", path=pem) from error
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise TierKeyError(
            "encrypted segments need cryptography, which the extra kstore[tiered] installs", path=pem
        ) from error
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The texts of these errors may quote the file.
        key = None
    if not isinstance(key, RSAPrivateKey) or key.key_size > _MOST_MODULUS_BITS:
        raise TierKeyError(f"{pem}: expected an RSA private key in PEM (PKCS#8), without a password", path=pem)
    return key.private_numbers()
