"""Goal: SCRAM lets in who has the password, and nobody by another message.
Method: the exchanges of RFC 5802's successors, and messages that differ from them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kstore.errors import AuthenticationError
from kstore.serve.security.scram import (
    ScramExchange,
    credential_of,
    credential_of_nobody,
)

# RFC 7677, 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
OWN_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
NONCE = "rOprNGfwEbeRWgbNEkqO" + OWN_NONCE
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = f"c=biws,r={NONCE},p={PROOF}".encode()
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(user, mechanism):
    if user == "user":
        return credential_of("pencil", mechanism, salt=SALT, iterations=4096)
    return credential_of_nobody(user, mechanism, key=b"k" * 32, iterations=4096)


def exchange():
    return ScramExchange("SCRAM-SHA-256", credential, nonce=OWN_NONCE)


def test_the_exchange_is_that_of_the_rfc():
    ours = exchange()
    assert ours.step(FIRST) == CHALLENGE
    assert ours.user is None
    assert ours.step(FINAL) == VERDICT
    assert ours.user == "user"


def test_what_is_kept_is_neither_the_password_nor_the_same_for_two_users():
    one, other = (credential_of("pencil", "SCRAM-SHA-512", iterations=4096) for _ in range(2))
    assert one.salt != other.salt
    assert one.stored_key != other.stored_key
    assert b"pencil" not in b"".join((one.salt, one.stored_key, one.server_key))
    assert (len(one.stored_key), one.is_of("pencil"), one.is_of("pencil ")) == (64, True, False)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"p=tls-unique,,n=user,r=abc", id="channel-binding"),
        pytest.param(b"n,a=other,n=user,r=abc", id="as-another"),
        pytest.param(b"n,,m=x,n=user,r=abc", id="reserved"),
        pytest.param(b"n,,n=user,r=abc,m=x", id="reserved-later"),
        pytest.param(b"n,,n=user,r=abc,tokenauth=true", id="token"),
        pytest.param(b"n,,n=us=2Der,r=abc", id="wrong-escape"),
        pytest.param(b"n,,n=,r=abc", id="no-name"),
        pytest.param(b"n,,n=user,r=", id="no-nonce"),
        pytest.param(b"n,,n=user\xff,r=abc", id="no-text"),
    ],
)
def test_a_first_message_that_is_malformed_or_asks_for_more_is_refused(first):
    with pytest.raises(AuthenticationError):
        exchange().step(first)


@pytest.mark.parametrize(
    "final",
    [
        pytest.param(f"c=biws,r={NONCE}x,p={PROOF}", id="other-nonce"),
        pytest.param(f"c=biws,r=rOprNGfwEbeRWgbNEkqO,p={PROOF}", id="own-nonce-only"),
        pytest.param(f"c=eSws,r={NONCE},p={PROOF}", id="other-header"),
        pytest.param(f"c=biws,r={NONCE},p=AAAA{PROOF[4:]}", id="other-proof"),
        pytest.param(f"c=biws,r={NONCE},p=AAAA", id="short-proof"),
        pytest.param(f"c=biws,r={NONCE},p=AAA", id="no-base64"),
        pytest.param(f"c=biws,r={NONCE}", id="no-proof"),
        pytest.param("", id="empty"),
    ],
)
def test_a_final_message_that_proves_nothing_is_refused(final):
    ours = exchange()
    ours.step(FIRST)
    with pytest.raises(AuthenticationError):
        ours.step(final.encode())
    assert ours.user is None


def test_a_final_message_with_the_header_of_another_exchange_is_refused_whatever_it_proves():
    ours = exchange()
    ours.step(FIRST)
    unproved = f"c=eSws,r={NONCE}"
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    said = f"n=user,r=rOprNGfwEbeRWgbNEkqO,{CHALLENGE.decode()},{unproved}"
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said.encode(), "sha256")
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True)))
    with pytest.raises(AuthenticationError, match="another exchange"):
        ours.step(f"{unproved},p={proof.decode()}".encode())


def test_a_final_message_counts_once():
    ours = exchange()
    ours.step(FIRST)
    ours.step(FINAL)
    with pytest.raises(AuthenticationError):
        ours.step(FINAL)


def test_an_unknown_user_is_asked_as_a_known_one_and_always_alike():
    challenges = []
    for user in ("nobody", "nobody", "another"):
        ours = exchange()
        challenges.append(ours.step(f"n,,n={user},r=abc".encode()))
        with pytest.raises(AuthenticationError):
            ours.step(f"c=biws,r=abc{OWN_NONCE},p={PROOF}".encode())
    assert challenges[0] == challenges[1] != challenges[2]
    fields = [len(field) for field in challenges[0].split(b",")]
    known = exchange().step(b"n,,n=user,r=abc")
    assert fields == [len(field) for field in known.split(b",")]


@pytest.mark.parametrize("name", [b"n,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=abc", b"y,,n=a=2Cb=3Dc,r=abc"])
def test_commas_and_equals_in_a_name_are_escaped(name):
    asked = []

    def seen(user, mechanism):
        asked.append(user)
        return credential("user", mechanism)

    ScramExchange("SCRAM-SHA-256", seen).step(name)
    assert asked == ["a,b=c"]
