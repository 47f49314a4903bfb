"""What an issuer has signed, held against its keys as they are published."""

from collections.abc import Mapping
from typing import Any

from app.auth.issuer import Issuer
from app.auth.problems import Refused
from app.auth.tokens import check_header, check_signature
from app.settings import IssuerSettings


async def signed_claims(
    issuer: Issuer, token: bytes, header: Mapping[str, Any], settings: IssuerSettings
) -> Mapping[str, Any]:
    """The claims of a token that this issuer has signed. Whom it is for and when is not checked.

    Args:
        header: Its own, unverified.
        settings: Which algorithms and types it may have.

    Raises:
        Refused: The issuer has not signed it.
        IssuerUnavailable: Its keys cannot be had.
    """
    kid, algorithm = check_header(header, settings)
    key = await issuer.key(kid, algorithm)
    try:
        claims = check_signature(token, key, algorithm)
    except Refused:
        # Without names, a new key shows only in that the old one does not fit.
        if kid is not None or not await issuer.look_again():
            raise
        key = await issuer.key(kid, algorithm)
        claims = check_signature(token, key, algorithm)
    if claims.get("iss") != issuer.settings.issuer:
        raise Refused("The token is of another issuer.")
    return claims
