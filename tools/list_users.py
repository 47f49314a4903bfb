"""An array as structured result, and an optional filter."""

from typing import Annotated, Final, TypedDict

from pydantic import Field

from app import tool


class User(TypedDict):
    id: Annotated[str, Field(description="User ID.")]
    name: Annotated[str, Field(description="Full name.")]
    email: Annotated[str, Field(description="E-mail address.")]


USERS: Final[tuple[User, ...]] = (
    {"id": "u1", "name": "Amara Okafor", "email": "amara@example.com"},
    {"id": "u2", "name": "Ben Carlsson", "email": "ben@example.com"},
    {"id": "u3", "name": "Chloé Dubois", "email": "chloe@example.org"},
    {"id": "u4", "name": "Diego Ramos", "email": "diego@example.com"},
    {"id": "u5", "name": "Emi Tanaka", "email": "emi@example.org"},
)


@tool(
    title="List users",
    annotations={"read_only": True, "open_world": False},
)
def list_users(
    search: Annotated[
        str, Field(description="Only users whose name or e-mail has this text, in any case.")
    ] = "",
) -> list[User]:
    """List the users of a sample directory, in the order of their IDs."""
    wanted = search.strip().casefold()
    return [
        user
        for user in USERS
        if wanted in user["name"].casefold() or wanted in user["email"].casefold()
    ]
