"""Shapes of secrets: keys that say whose they are, and values that stand beside a telling name."""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from app.guards.spans import NAMES, Span, begins_alone, ends_alone

_MASK: Final = NAMES["secret"]
_RANDOM: Final = 16
_SURELY_RANDOM: Final = 40
"""Where a name leaves it open, a value of so many characters is a secret if it has a digit, or
without one."""


class _Shape(NamedTuple):
    """A key that begins with fixed characters.

    Attributes:
        head: What it begins with, as its issuer has it. One fixed first letter makes the search
            many times faster than a choice of several.
        rest: What follows; it takes all it can, and what it took is not looked at again, so the
            search is linear.
        closed: Whether a letter or digit behind makes it something else; if not, the group
            ``hit`` says whether it was found.
    """

    head: re.Pattern[str]
    rest: re.Pattern[str]
    closed: bool = True


def _shape(head: str, rest: str, *, closed: bool = True) -> _Shape:
    return _Shape(re.compile(head), re.compile(rest, re.ASCII), closed)


_SHAPES: Final = (
    # Amazon: the id of a key, and the key if it is the next word
    _shape(
        r"A(?:KIA|SIA|BIA|CCA)",
        r"[A-Z2-7]{16}(?![A-Za-z0-9])(?:[\"'\s,:;|]{1,4}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?",
    ),
    # GitHub: of classic ones the last digits are a checksum
    _shape(r"gh[pousr]_", r"[A-Za-z0-9]{36,}+"),
    _shape(r"github_pat_", r"[A-Za-z0-9_]{36,}+"),
    # GitLab: personal, deploy, runner, trigger, feed, mail, agent, OAuth, SCIM, job
    _shape(r"gl(?:pat|dt|rt|ptt|ft|imt|agent|oas|soat|cbt)-", r"[A-Za-z0-9_.-]{20,}+"),
    # Slack: tokens, and hooks, whose path is the credential
    _shape(r"xox[a-s](?:\.xox[a-s])?-", r"[A-Za-z0-9%-]{10,}+"),
    _shape(r"xapp-", r"[A-Za-z0-9-]{10,}+"),
    _shape(r"hooks\.slack\.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9/_+-]{20,}+"),
    # Google: API keys, client secrets, access tokens
    _shape(r"AIza", r"[A-Za-z0-9_-]{35}"),
    _shape(r"GOCSPX-", r"[A-Za-z0-9_-]{28}"),
    _shape(r"ya29\.", r"[A-Za-z0-9_-]{20,}+"),
    # Stripe: secret and restricted keys, signing secrets of hooks
    _shape(r"sk_(?:live|test|prod)_", r"[A-Za-z0-9]{10,}+"),
    _shape(r"rk_(?:live|test|prod)_", r"[A-Za-z0-9]{10,}+"),
    _shape(r"whsec_", r"[A-Za-z0-9+/]{20,}+"),
    # Model providers
    _shape(r"sk-", r"(?=[A-Za-z0-9_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}+"),
    _shape(r"hf_", r"[A-Za-z0-9]{30,}+"),
    # Registries of packages
    _shape(r"npm_", r"[A-Za-z0-9]{36,}+"),
    _shape(r"pypi-Ag", r"[A-Za-z0-9_-]{50,}+"),
    # SendGrid, Twilio
    _shape(r"SG\.", r"[A-Za-z0-9_-]{16,64}+\.[A-Za-z0-9_-]{16,}+"),
    _shape(r"SK", r"[0-9a-f]{32}"),
    # This server's own API keys (app.auth.api_keys)
    _shape(r"mts_", r"[a-z0-9][a-z0-9-]{0,31}_[A-Za-z0-9_-]{43}"),
    # JSON Web Tokens, signed (three parts) or encrypted (five)
    _shape(
        r"eyJ",
        r"[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{2,}+(?P<hit>(?:\.[A-Za-z0-9_-]*+){1,3}+))?+",
        closed=False,
    ),
    # Private keys: the whole block; where its end is missing, the lines that are there
    _shape(
        r"-----BEGIN ",
        r"(?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?P<hit>(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{1,60}-----"
        r"|(?:(?:\s|\\[nrt])*+[A-Za-z0-9+/=]{16,}+)++(?:(?:\s|\\[nrt])*+[A-Za-z0-9+/=]+)?)?",
        closed=False,
    ),
)

# A password in a URL, up to the last @ of its authority.
_URL_PASSWORD: Final = re.compile(r"://[^\s:/?#@\"'<>]{0,256}:([^\s/?#\"'<>]{1,512})@")

_AUTHORIZATION: Final = re.compile(
    r"\bauthorization(?:\\?[\"'])?\s{0,4}[:=]\s{0,4}(?:b?\\?[\"'])?"
    r"(?P<scheme>(?:bearer|basic|token|apikey|negotiate|ntlm|dpop)\s{1,4})?+"
    r"(?P<value>[^\s\"'\\,;]++)",
    re.ASCII | re.IGNORECASE,
)
_SCHEME: Final = re.compile(
    r"\b(?:bearer|basic)\s{1,4}(?P<value>[A-Za-z0-9._~+/=-]++)", re.ASCII | re.IGNORECASE
)
_COOKIE: Final = re.compile(
    r"\bcookie(?:\\?[\"'])?\s{0,4}:\s{0,4}(?:\\?[\"'])?(?P<value>[^\s\"'=:;\\]{1,256}+=[^\n\r\"'\\]*+)",
    re.ASCII | re.IGNORECASE,
)

_SURE: Final = (
    *("password", "passwd", "passphrase", "passcode", "pwd", "secret", "connectionstring"),
    *("apikey", "appkey", "accesskey", "accountkey", "secretkey", "privatekey", "signingkey"),
    *("encryptionkey", "masterkey", "authkey", "sharedkey", "licensekey"),
    *("accesstoken", "refreshtoken", "authtoken", "authenticationtoken", "apitoken"),
    *("bearertoken", "idtoken", "sessiontoken", "securitytoken", "csrftoken", "oauthtoken"),
    *("authorization", "cookie"),
)
"""The last words of names whose value is a secret, whatever it looks like."""
_NOT: Final = ("pagetoken", "nexttoken", "continuationtoken")
"""Of those that end in ``token``, which may also be a word of a text: places in a list."""
_LAST_WORDS: Final = ("pass", "pwd", "secret", "key", "token", "string")
_REST_OF_NAME: Final = re.compile(r"(?:word|wd|phrase|code)?s?", re.ASCII | re.IGNORECASE)
_LONGEST_NAME: Final = 32
_LONGEST_FOLDER: Final = 256
_ASSIGNMENT: Final = re.compile(
    r"(?:\\?[\"'])?\]?"  # "name": and config["name"] =
    r"(?:[ \t]{0,4}(?::[ \t]{0,4}str(?:[ \t]?\|[ \t]?None)?[ \t]{0,4}=|:=|=>|==?|:)[ \t]{0,4}|>)"
    r"(?:[bfru]?(?:"
    r'\\"(?P<a>(?:[^\\\n]|\\(?!["\n]))*+)'
    r"|\\'(?P<b>(?:[^\\\n]|\\(?!['\n]))*+)"
    r'|"(?P<c>(?:[^"\\\n]|\\.)*+)'
    r"|'(?P<d>(?:[^'\\\n]|\\.)*+)"
    r")|(?P<e>(?:[^\s\"'&<>,;\\]|\\(?![nrt\"'])|[,;](?![\s\"']|[\w.-]{1,40}[=:]|\Z))++))",
    re.ASCII,
)
_OPENERS: Final = {")": "(", "]": "[", "}": "{"}
_MOST_CLOSERS: Final = 8
# What stands where a secret would stand: nothing, a variable, a mask.
_PLACEHOLDER: Final = re.compile(
    r"|none|null|nil|true|false|undefined|\*+|\.{3,}|x{3,}|%s|%\(\w{1,40}\)s"
    r"|\$\{\w{1,60}\}|\$?\{\{[ \w.-]{0,60}\}\}|\{\w{0,60}\}|<[ \w-]{0,60}>"
    r"|\[(?:secret|email|card|phone|national id|redacted|filtered|hidden)\]"
    r"|SecretStr\('\*{0,20}'?\)?",
    re.ASCII | re.IGNORECASE,
)


def find_secrets(text: str) -> Iterator[Span]:
    """Secrets in a text, known by their shape or by the name beside them."""
    for shape in _SHAPES:
        yield from _shaped(text, shape)
    if "://" in text:
        for found in _URL_PASSWORD.finditer(text):
            if not _PLACEHOLDER.fullmatch(found[1]):
                yield Span(*found.span(1), "secret", _MASK)
    lower = _lower(text)
    if "authorization" in lower:
        yield from _authorizations(text)
    if "bearer" in lower or "basic" in lower:
        yield from _schemes(text)
    if "cookie" in lower:
        for found in _COOKIE.finditer(text):
            yield Span(*found.span("value"), "secret", _MASK)
    for word in _LAST_WORDS:
        if word in lower:
            yield from _assignments(text, lower, word)


def names_secret(name: str) -> Literal["sure", "perhaps"] | None:
    """Whether a name says that its value is a secret, or is one if it looks like one."""
    plain = name.lower().removesuffix("s").replace("_", "").replace("-", "")
    if plain.endswith(_SURE):
        return "sure"
    if plain.endswith("token"):
        return None if plain.endswith(_NOT) else "perhaps"
    return "sure" if name.lower().endswith("_pass") else None


def is_secret_value(value: str, *, sure: bool) -> bool:
    """Whether a value is a secret, beside a name that says so surely or perhaps."""
    if _PLACEHOLDER.fullmatch(value):
        return False
    if sure or len(value) >= _SURELY_RANDOM:
        return True
    return len(value) >= _RANDOM and any(character.isdigit() for character in value)


def _lower(text: str) -> str:
    """In lower case, with every letter in its place."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two
        lower = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    return lower


def _shaped(text: str, shape: _Shape) -> Iterator[Span]:
    position = 0
    while (head := shape.head.search(text, position)) is not None:
        position = head.end()
        if not begins_alone(text, head.start()):
            continue
        found = shape.rest.match(text, position)
        if found is not None:
            position = found.end()
            if _is_hit(text, found, shape):
                yield Span(head.start(), position, "secret", _MASK)


def _is_hit(text: str, found: re.Match[str], shape: _Shape) -> bool:
    if shape.closed:
        return ends_alone(text, found.end())
    return found["hit"] is not None


def _authorizations(text: str) -> Iterator[Span]:
    for found in _AUTHORIZATION.finditer(text):
        value = found["value"]
        if is_secret_value(value, sure=found["scheme"] is not None):
            yield Span(*found.span("value"), "secret", _MASK)


def _schemes(text: str) -> Iterator[Span]:
    for found in _SCHEME.finditer(text):
        if is_secret_value(found["value"], sure=False):
            yield Span(*found.span("value"), "secret", _MASK)


def _assignments(text: str, lower: str, word: str) -> Iterator[Span]:
    """What is assigned to names that end in a word, or a longer form of it."""
    place = lower.find(word)
    while place >= 0:
        position = place + len(word)
        rest = _REST_OF_NAME.match(text, position)
        assert rest is not None  # it may be empty
        name = text[max(0, place - _LONGEST_NAME) : rest.end()]
        # The colon after a mask of ours assigns nothing.
        named = None if name.endswith("[secret") else names_secret(name)
        found = _ASSIGNMENT.match(text, rest.end()) if named else None
        if found is not None:
            group = found.lastgroup or "e"
            start = found.start(group)
            value = found[group] if group != "e" else _without_closers(found[group])
            # What is no secret may hold one; it is short, so this stays linear.
            if not _is_folder(name, value) and is_secret_value(value, sure=named == "sure"):
                yield Span(start, start + len(value), "secret", _MASK)
                position = found.end()
        place = lower.find(word, position)


def _is_folder(name: str, value: str) -> bool:
    """Whether this is the working directory, as shells name it."""
    return (
        name[-3:].lower() == "pwd"
        and value.startswith(("/", "~"))
        and len(value) <= _LONGEST_FOLDER
    )


def _without_closers(value: str) -> str:
    """A value without the brackets and the full stop that belong to what is around it."""
    for _ in range(_MOST_CLOSERS):
        last = value[-1:]
        if last != "." and (
            last not in _OPENERS or value.count(last) <= value.count(_OPENERS[last])
        ):
            break
        value = value[:-1]
    return value
