"""Goal: a data key opens with its own private key only, and each way not to have it is named.
Method: keys wrapped by an encoder of this test (RFC 8017 with SHA3-512), rings that lack one, have another, or a file
that is none."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from kstore import TierKeyError
from kstore.tier.keys import DataKey, KeyRing, Sealed
from tests.making.tiers import key

DATA_KEY = bytes(range(32))


def wrapped(key_id: str | None = "key1", *, by: str = "key1") -> DataKey:
    return DataKey(key_id, key(by).wrap(DATA_KEY), b"aad")


def test_a_data_key_opens_with_its_private_key(tmp_path: Path) -> None:
    ring = KeyRing.of({"key1": key("key1").write(tmp_path), "key2": key("key2").write(tmp_path)})
    assert ring.open(wrapped(), path="manifest") == DATA_KEY
    assert ring.open(wrapped("key2", by="key2"), path="manifest") == DATA_KEY


def test_a_manifest_without_a_key_id_is_opened_by_whichever_key_fits(tmp_path: Path) -> None:
    ring = KeyRing.of({"a": key("key2").write(tmp_path), "b": key("key1").write(tmp_path)})
    assert ring.open(wrapped(None), path="manifest") == DATA_KEY


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    ring = KeyRing.of({"key1": key("key1").write(tmp_path)})
    with pytest.raises(TierKeyError, match=r"'key7'.*found 'key1'") as caught:
        ring.open(wrapped("key7"), path="the manifest")
    assert (caught.value.key_id, caught.value.path) == ("key7", "the manifest")
    with pytest.raises(TierKeyError, match="found none"):
        KeyRing.of(None).open(wrapped(), path="the manifest")


def test_another_key_under_the_id_is_refused(tmp_path: Path) -> None:
    ring = KeyRing.of({"key1": key("key2").write(tmp_path)})
    with pytest.raises(TierKeyError, match="'key1' does not open") as caught:
        ring.open(wrapped(), path="the manifest")
    assert caught.value.key_id == "key1"
    assert "its padding is not that of this key" in str(caught.value)


def test_a_data_key_above_the_modulus_of_a_key_is_of_another_one(tmp_path: Path) -> None:
    ring = KeyRing.of({"key1": key("key1").write(tmp_path)})
    with pytest.raises(TierKeyError, match="its padding is not that of this key"):
        ring.open(wrapped()._replace(wrapped=b"\xff" * 256), path="the manifest")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda data: data + b"\0", id="grown"),
        pytest.param(lambda data: b"\xff" * len(data), id="above the modulus"),
        pytest.param(lambda data: bytes((data[0] ^ 1,)) + data[1:], id="one bit"),
        pytest.param(lambda _: b"", id="nothing"),
    ],
)
def test_a_damaged_data_key_is_refused(change: object, tmp_path: Path) -> None:
    assert callable(change)
    ring = KeyRing.of({"key1": key("key1").write(tmp_path)})
    damaged = DataKey("key1", change(key("key1").wrap(DATA_KEY)), b"")
    with pytest.raises(TierKeyError, match="does not open"):
        ring.open(damaged, path="manifest")


def test_a_data_key_of_another_size_is_refused(tmp_path: Path) -> None:
    ring = KeyRing.of({"key1": key("key1").write(tmp_path)})
    with pytest.raises(TierKeyError, match="expected a key of 32 bytes, found 16"):
        ring.open(DataKey("key1", key("key1").wrap(DATA_KEY[:16]), b""), path="manifest")


def test_a_file_that_is_no_private_key_is_named_and_not_quoted(tmp_path: Path) -> None:
    secret = "MIIsecret"
    elliptic = ec.generate_private_key(ec.SECP256R1())
    files = {
        "text": f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n".encode(),
        "elliptic": elliptic.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "locked": key("key1").private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"p")),
    }
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(TierKeyError, match="expected an RSA private key") as caught:
            KeyRing.of({"key1": path}).open(wrapped(), path="manifest")
        assert str(path) in str(caught.value)
        assert secret not in str(caught.value)
    with pytest.raises(TierKeyError, match="cannot read the private key"):
        KeyRing.of({"key1": tmp_path / "none"}).open(wrapped(), path="manifest")


def test_a_ring_that_is_pickled_has_paths_and_no_keys(tmp_path: Path) -> None:
    path = key("key1").write(tmp_path)
    ring = KeyRing.of({"key1": path})
    ring.open(wrapped(), path="manifest")
    data = pickle.dumps(ring)
    assert str(path).encode() in data
    assert b"PRIVATE" not in data
    assert len(data) < 500


def test_bytes_are_opened_with_their_tag_and_additional_data_only() -> None:
    iv = os.urandom(12)
    data = iv + AESGCM(DATA_KEY).encrypt(iv, b"content", b"aad")
    assert Sealed(DATA_KEY, b"aad").open(data) == b"content"
    for other in (data[:-1] + bytes((data[-1] ^ 1,)), data[:20], data + b"x", bytes((data[0] ^ 1,)) + data[1:]):
        with pytest.raises(ValueError, match="tag"):
            Sealed(DATA_KEY, b"aad").open(other)
    with pytest.raises(ValueError, match="tag"):
        Sealed(DATA_KEY, b"other").open(data)
