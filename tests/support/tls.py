"""A certificate authority of the tests, and a certificate of `localhost`."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Files: the authority's certificate, the server's own, and its key."""

    authority: Path
    chain: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        """A new authority, and a certificate for `localhost` and 127.0.0.1."""
        ours, theirs = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        issuer = _name("authority of the tests")
        root = (
            _builder(issuer, issuer, ours)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(ours.public_key()), critical=False
            )
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(ours, hashes.SHA256())
        )
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        leaf = (
            _builder(_name("localhost"), issuer, theirs)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ours.public_key()),
                critical=False,
            )
            .add_extension(_usage(signs_certificates=False), critical=True)
            .sign(ours, hashes.SHA256())
        )
        found = cls(authority=folder / "ca.pem", chain=folder / "chain.pem", key=folder / "key.pem")
        found.authority.write_bytes(root.public_bytes(PEM))
        found.chain.write_bytes(leaf.public_bytes(PEM))
        found.key.write_bytes(
            theirs.private_bytes(
                PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return found

    def context(self) -> ssl.SSLContext:
        """Of a client that trusts the authority, and no other."""
        return ssl.create_default_context(cafile=str(self.authority))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    # The subject's own public key; whoever issues signs it.
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
