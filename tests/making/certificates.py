"""Certificates of a throw-away authority, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
_VALID_TO = datetime.datetime(2120, 1, 1, tzinfo=datetime.timezone.utc)

# Python 3.13 asks for it.
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Certificate(NamedTuple):
    """A certificate and its key, as paths."""

    certificate: str
    key: str


class Authority:
    """An authority that signs certificates; its own is at `path`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name({NameOID.COMMON_NAME: "Test authority"})
        own = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        own = own.add_extension(_SIGNS, True)
        path = directory / "ca.pem"
        path.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self.path = str(path)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_VALID_FROM)
            .not_valid_after(_VALID_TO)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )

    def signed(self, file_name: str, **attributes: str) -> Certificate:
        """Return a new certificate for 127.0.0.1 with these attributes in its subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name({getattr(NameOID, name): value for name, value in attributes.items()})
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = self._builder(subject, key).add_extension(names, False).sign(self._key, hashes.SHA256())
        certificate, key_file = self._directory / f"{file_name}.pem", self._directory / f"{file_name}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return Certificate(str(certificate), str(key_file))


def _name(attributes: dict[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes.items()])
