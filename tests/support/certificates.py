"""An authority of the tests' own, and certificates that it has signed."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for addresses; ``ca_file`` is what its clients trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority of the tests")
        self._certificate = self._builder(self._name, self._key, is_authority=True)
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, address: str = "127.0.0.1") -> Path:
        """A file with a certificate for an address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._builder(_name(name), key, address=address)
        file = self._folder / f"{name}.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return file

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        address: str | None = None,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if address is not None:
            names = [x509.IPAddress(ipaddress.ip_address(address))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
