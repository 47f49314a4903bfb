"""Why a credential does not count, before it becomes an answer of HTTP."""

from typing import ClassVar


class Refused(Exception):
    """It is wrong, and stays so. The message is a sentence for whoever debugs the client.

    It never holds a part of the credential, a claim's value or the words of a library.

    Attributes:
        found: The same in one word, for the metrics.
    """

    found: ClassVar[str] = "invalid"


class Malformed(Refused):
    """The request is wrong, whatever the credential is worth."""

    found = "malformed"


class Expired(Refused):
    found = "expired"


class Revoked(Refused):
    found = "revoked"


class IssuerUnavailable(Exception):
    """Nobody can say now: who could is not to be had.

    Attributes:
        retry_after_s: When this server tries again.
    """

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class IssuerBusy(IssuerUnavailable):
    """It is asked as much as it may be."""

    def __init__(self) -> None:
        super().__init__(1.0)


class UnusableFile(ValueError):
    """A file that the settings name cannot be used; the message names it and what is right."""
