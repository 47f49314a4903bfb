"""Tools that ask for what must not pass through the client."""

import hashlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SecretStr, field_validator

from app import Context, tool


class Account(BaseModel):
    user: Annotated[str, Field(min_length=2, title="User name")]
    api_key: Annotated[
        SecretStr, Field(min_length=8, title="API key", description="See https://example.com/keys")
    ]
    region: Literal["eu", "us"] = "eu"
    days: Annotated[int, Field(ge=1, le=90)] = 30
    read_only: bool = True
    areas: list[Literal["mail", "files"]] = []

    @field_validator("api_key")
    @classmethod
    def is_a_key(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if text == "crash-the-check":
            raise RuntimeError(text)
        if not text.startswith("key-"):
            raise ValueError(f"{text} does not begin with key-")
        return value


class Markup(BaseModel):
    password: Annotated[
        str, Field(title="<script>alert(1)</script>", description="</p><img src=x onerror=a()>")
    ]
    choice: Literal['"><script>alert(2)</script>', "b"] = "b"


class Sure(BaseModel):
    sure: bool


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@tool(asks=["elicitation.url"])
async def connect(ctx: Context, service: str = "mail") -> dict[str, Any]:
    """Connect an account."""
    answer = await ctx.elicit_page("account", f"Connect your account of {service}.", Account)
    if answer.data is None:
        return {"action": answer.action}
    account = answer.data
    return {
        "action": answer.action,
        "digest": _digest(account.api_key.get_secret_value()),
        **account.model_dump(exclude={"api_key"}),
    }


@tool(asks=["elicitation", "elicitation.url"])
async def connect_surely(ctx: Context) -> str:
    """Ask on a page, then in a form."""
    answer = await ctx.elicit_page("account", "Connect your account.", Account)
    sure = await ctx.elicit("sure", "Is that all?", Sure)
    key = answer.data.api_key.get_secret_value() if answer.data else ""
    return f"{answer.action} {_digest(key)} {sure.data and sure.data.sure}"


@tool(asks=["elicitation.url"])
async def markup(ctx: Context, text: str) -> str:
    """Ask in words that would be markup."""
    return (await ctx.elicit_page("a", f"<script>{text}</script>", Markup)).action


@tool(asks=["elicitation.url"])
async def twice(ctx: Context) -> str:
    """Ask on two pages, one after the other."""
    one = await ctx.elicit_page("one", "The old password?", Markup)
    two = await ctx.elicit_page("two", "The new password?", Markup)
    return f"{one.action} {two.action}"
