"""TLS: the context of a server, and the principal that a client's certificate names."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from kstore.errors import SecurityError
from kstore.serve.config import SecurityConfig

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# RFC 2253, 2.3; other attributes have the name that OpenSSL gives them.
_SHORT_NAMES = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def server_context(config: SecurityConfig) -> ssl.SSLContext:
    """Return the context of a server.  Raises: SecurityError if a file is missing, or is not what it should be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could have the server compute for it as often as it likes.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _VERIFY[config.client_certificates]
    # Without a password OpenSSL would ask the terminal for one.
    password = config.key_password or ""
    try:
        context.load_cert_chain(str(config.certificate), config.key and str(config.key), lambda: password)
        if config.client_ca is not None:
            context.load_verify_locations(str(config.client_ca))
    except OSError as error:
        names = ", ".join(str(one) for one in (config.certificate, config.key, config.client_ca) if one is not None)
        raise SecurityError(f"cannot use the certificates of {names}: {error.strerror or error}") from error
    return context


def subject_name(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the subject of a certificate as SSLSocket.getpeercert() has it, None if there is none.

    Returns: the name by RFC 2253, as Kafka's default principal has it: CN=client,OU=team,O=firm.
    """
    subject = certificate.get("subject") if certificate else None
    if not subject:
        return None
    parts = ("+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part) for part in subject)
    return ",".join(reversed([*parts]))


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{one}" if one in ',+"\\<>;' else one for one in value)
    if escaped[:1] in ("#", " "):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if len(value) > 1 and value.endswith(" ") else escaped
