"""Credentials that administrators have revoked before their time."""

from collections.abc import Iterable


class Revocations:
    """The list as it is now, in memory: no request waits for it.

    One object for the life of the process, so that whatever authenticator serves sees the newest.
    Entries need no end of their own here: the credential's comes first.
    """

    def __init__(self) -> None:
        self._revoked: frozenset[tuple[str, str]] = frozenset()

    def replace(self, revoked: Iterable[tuple[str, str]]) -> bool:
        """Put another list in place of this one, and say whether it has further credentials.

        Args:
            revoked: Issuer and id of each: ``jti`` of a token, or the id of an API key, whose
                issuer is ``api-key``.
        """
        before, self._revoked = self._revoked, frozenset(revoked)
        return not self._revoked <= before

    def has(self, issuer: str | None, credential_id: str | None) -> bool:
        """Whether a credential is on the list; one without an id cannot be."""
        return (issuer, credential_id) in self._revoked
