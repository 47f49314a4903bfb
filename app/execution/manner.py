"""How what tools say on their way is changed before it is sent: progress and log messages."""

from typing import Any

from app.guards.cleaning import clean_data, clean_text
from app.guards.redaction import Redactor
from app.protocol.jsonrpc import dumps, loads
from app.settings import Settings


class Manner:
    """Changes texts and data for one server.

    Args:
        cleans: Whether invisible characters and terminal escapes are taken out.
        redactor: Masks personal data and secrets; None: nothing is masked.
    """

    def __init__(self, *, cleans: bool = True, redactor: Redactor | None = None) -> None:
        self._cleans = cleans
        self._redactor = redactor

    def text(self, text: str) -> str:
        """A text as it is sent."""
        if self._redactor is not None:
            text = self._redactor.text(text)
        return clean_text(text) if self._cleans else text

    def data(self, data: Any) -> Any:
        """Data as it is sent.

        Args:
            data: Anything with a JSON form.
        """
        data = loads(dumps(data))
        if self._redactor is not None:
            data = self._redactor.data(data)
        return clean_data(data) if self._cleans else data


def manner_of(settings: Settings) -> Manner:
    """What tools say to their client is masked as the log is."""
    kinds, locales = settings.logging.redact, settings.logging.locales
    redactor = Redactor(kinds, locales=locales) if kinds else None
    return Manner(cleans=settings.execution.clean_text, redactor=redactor)
