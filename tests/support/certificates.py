"""An authority of the tests' own, and certificates that it has signed."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM: Final = serialization.Encoding.PEM
HERE: Final = ("localhost", "127.0.0.1")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Files: the authority's certificate, one that it has signed, its key, and these two in one."""

    authority: Path
    chain: Path
    key: Path
    both: Path

    def context(self) -> ssl.SSLContext:
        """Of a client that trusts the authority, and no other."""
        return ssl.create_default_context(cafile=str(self.authority))


class Authority:
    """Signs certificates; ``ca_file`` is what its clients trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority of the tests")
        public = self._key.public_key()
        root = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(root.public_bytes(PEM))

    def sign(self, name: str = "server", *, of: Sequence[str] = HERE) -> Certificate:
        """A certificate.

        Args:
            name: Of its files.
            of: The hosts and addresses that it is for.
        """
        key, issuer = ec.generate_private_key(ec.SECP256R1()), self._key.public_key()
        leaf = (
            self._builder(_name(name), key)
            .add_extension(x509.SubjectAlternativeName(map(_place, of)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
            )
            .add_extension(_usage(signs_certificates=False), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        chain = leaf.public_bytes(PEM)
        secret = key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files = {part: self._folder / f"{name}-{part}.pem" for part in ("chain", "key", "both")}
        files["chain"].write_bytes(chain)
        files["key"].write_bytes(secret)
        files["both"].write_bytes(chain + secret)
        return Certificate(authority=self.ca_file, **files)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _place(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


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
