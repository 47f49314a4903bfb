"""Who this server is at an issuer: its client id there, and the secret that proves it."""

import base64
from urllib.parse import quote_plus

from app.auth.problems import UnusableFile
from app.settings import BrowserSettings, IntrospectionSettings


def secret_of(settings: IntrospectionSettings | BrowserSettings) -> str | None:
    """The secret, if there is one.

    Raises:
        UnusableFile: It stands in a file, which cannot be read or is empty.
    """
    if settings.client_secret is not None:
        return settings.client_secret.get_secret_value()
    file = settings.client_secret_file
    if file is None:
        return None
    try:
        secret = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFile(f"{file}: cannot be read: {type(error).__name__}") from None
    if not secret:
        raise UnusableFile(f"{file}: is empty; it must hold the client secret")
    return secret


def basic(client_id: str, secret: str) -> str:
    """``client_secret_basic``: both parts are form-encoded first (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return "Basic " + base64.b64encode(pair.encode("ascii")).decode("ascii")
