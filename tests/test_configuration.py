"""Settings from the file, the environment and the command line."""

from pathlib import Path
from typing import Any

import pytest

from app.configuration import ConfigurationError, load_settings
from app.registry.tool import override_for
from app.settings import ENVIRONMENT_TOOL, Settings


def _load(
    tmp_path: Path, text: str = "", env: dict[str, str] | None = None, **flags: Any
) -> Settings:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return load_settings(file, environ=env or {}, flags=flags)


def test_the_shipped_file_is_a_working_default() -> None:
    settings = load_settings(Path(__file__).parents[1] / "config.toml", environ={})
    assert settings.server.is_loopback
    assert not settings.auth.allow_unauthenticated


def test_the_command_line_wins_over_the_environment_over_the_file(tmp_path: Path) -> None:
    text = "[server]\nport = 1\nhost = '127.0.0.2'\nname = 'file'\n"
    env = {"MCP__SERVER__PORT": "2", "MCP__SERVER__HOST": "127.0.0.3", "OTHER": "x"}
    server = _load(tmp_path, text, env, server={"port": 3}).server
    assert (server.port, server.host, server.name) == (3, "127.0.0.3", "file")


VALUES: dict[str, tuple[str, str, Any]] = {
    "text": ("SERVER__NAME", "12", "12"),
    "a number": ("EXECUTION__TIMEOUT_S", "1.5", 1.5),
    "a truth": ("TOOLS__RELOAD", "false", False),
    "a JSON list": ("SERVER__ALLOWED_HOSTS", '["a", "b"]', ("a", "b")),
    "a list in words": ("SERVER__ALLOWED_HOSTS", "a, b", ("a", "b")),
    "a path": ("TOOLS__DIRECTORY", "/srv/1", Path("/srv/1")),
}


@pytest.mark.parametrize(("variable", "text", "value"), VALUES.values(), ids=VALUES.keys())
def test_every_key_can_be_set_by_environment(
    tmp_path: Path, variable: str, text: str, value: Any
) -> None:
    settings = _load(tmp_path, env={f"MCP__{variable}": text})
    section, key = variable.lower().split("__")
    assert getattr(getattr(settings, section), key) == value


NEW, OLD = "n" * 32, "o" * 44


def test_keys_can_stand_in_a_file_one_on_each_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# rotated in May\n{NEW}\n\n  {OLD}\r\n")
    env = {"MCP__SECRETS__KEYS_FILE": str(file)}

    keys = _load(tmp_path, env=env).secrets.keys

    assert [key.get_secret_value() for key in keys] == [NEW, OLD]


KEY_FILES: dict[str, tuple[bytes | None, dict[str, str], str]] = {
    "it is not there": (None, {}, "FileNotFoundError"),
    "it is empty": (b"\n# none yet\n", {}, "holds no key"),
    "it is no text": (b"\xff" * 40, {}, "UnicodeDecodeError"),
    "a key is short": (b"hunter2\n", {}, "32 characters"),
    "there are keys beside it": (
        NEW.encode(),
        {"MCP__SECRETS__KEYS": f'["{OLD}"]'},
        "stands beside keys",
    ),
}


@pytest.mark.parametrize(("data", "env", "says"), KEY_FILES.values(), ids=KEY_FILES.keys())
def test_a_file_of_keys_that_cannot_be_used_is_explained(
    tmp_path: Path, data: bytes | None, env: dict[str, str], says: str
) -> None:
    file = tmp_path / "keys"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, env={"MCP__SECRETS__KEYS_FILE": str(file), **env})

    assert says in str(caught.value)
    assert str(file) in str(caught.value) or env
    assert "hunter2" not in str(caught.value) and OLD not in str(caught.value)


def test_settings_of_a_tool_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    text = '[overrides."finance.convert".settings]\nbase = "EUR"\n'
    env = {
        "MCP__OVERRIDES__FINANCE_CONVERT__SETTINGS__API_KEY": "0123",
        "MCP__OVERRIDES__FINANCE_CONVERT__TITLE": "2",
    }
    overrides = _load(tmp_path, text, env).overrides
    assert overrides["finance.convert"].settings == {"base": "EUR"}
    assert overrides[ENVIRONMENT_TOOL + "finance_convert"].settings == {"api_key": "0123"}
    merged = override_for("finance.convert", overrides)
    assert (merged.title, merged.settings) == ("2", {"base": "EUR", "api_key": "0123"})


def test_a_table_of_the_file_is_for_the_tool_of_exactly_that_name(tmp_path: Path) -> None:
    overrides = _load(tmp_path, '[overrides.finance_convert.settings]\nkey = "x"\n').overrides
    assert override_for("finance.convert", overrides).settings == {}
    assert override_for("finance_convert", overrides).settings == {"key": "x"}


PROBLEMS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "an unknown section": ("[srever]\n", {}, ("srever", "unknown section", '"server"')),
    "an unknown key": ("[server]\nprot = 1\n", {}, ("server.prot", '"port"', "Known:")),
    "a bad value": ("[server]\nport = 'x'\n", {}, ("server.port", "integer")),
    "a value out of bounds": ("[execution]\ntimeout_s = 0\n", {}, ("timeout_s", "greater than 0")),
    "a choice": ("[tools]\nseparator = '/'\n", {}, ("tools.separator", "'.'", "'_'")),
    "no TOML": ("[server\n", {}, ("not valid TOML", "line 1")),
    "a table for a list": ("[server]\nallowed_hosts = {}\n", {}, ("allowed_hosts",)),
    "a host with a port": ("[server]\nallowed_hosts = ['a:1']\n", {}, ("without scheme and port",)),
    "a kind to redact": (
        "[logging]\nredact = ['mail']\n",
        {},
        ("logging.redact", "'email'", "'national_id'"),
    ),
    "a country": (
        "[logging]\nlocales = ['uk']\n",
        {},
        ("logging.locales", "'uk'", "known: ", "gb"),
    ),
    "an origin with a path": ("[server]\nallowed_origins = ['http://a/b']\n", {}, ("origin",)),
    "a public URL without scheme": ("[server]\npublic_url = 'a.example'\n", {}, ("http(s) URL",)),
    "a network that is none": ("[server]\ntrusted_proxies = ['x']\n", {}, ("trusted_proxies",)),
    "a short key": ("[secrets]\nkeys = ['hunter2']\n", {}, ("32 characters",)),
    "state in something else": ("[state]\nurl = 'mysql://root:hunter2@x'\n", {}, ("memory://",)),
    "state in two servers": ("[state]\nurl = 'redis://a,b'\n", {}, ("redis+sentinel://",)),
    "a password with an @": ("[state]\nurl = 'redis://:hunter2@@'\n", {}, ("%40",)),
    "a password with a ?": ("[state]\nurl = 'redis://:hunter2?@x'\n", {}, ("%3F",)),
    "sentinels of nothing": ("[state]\nurl = 'redis+sentinel://a:1'\n", {}, ("the service",)),
    "a cluster with a database": ("[state]\nurl = 'redis+cluster://a/1'\n", {}, ("one database",)),
    "a database that is none": ("[state]\nurl = 'redis://a/b'\n", {}, ("number of a database",)),
    "a port that is none": ("[state]\nurl = 'redis://a:99999'\n", {}, ("name:port",)),
    "a socket without a path": ("[state]\nurl = 'unix://run'\n", {}, ("unix:///run",)),
    "a prefix with braces": ("[state]\nprefix = '{a}'\n", {}, ("state.prefix",)),
    "a fleet without keys": ("[server]\nfleet = true\n", {}, ("[server] fleet", "[secrets] keys")),
    "a fleet in memory": (
        "[server]\nfleet = true\n[secrets]\nkeys = ['12345678901234567890123456789012']\n",
        {},
        ("[server] fleet", "[state] url", "limits multiply"),
    ),
    "an open bind": ("[server]\nhost = '0.0.0.0'\n", {}, ("allow_unauthenticated",)),
    "a dotted name without quotes": (
        "[overrides.finance.convert]\nenabled = false\n",
        {},
        ('[overrides."finance.convert"]',),
    ),
    "rules in single brackets": (
        "[policies]\ntools = ['*']\n",
        {},
        ("policies: must be tables", "[[policies]]"),
    ),
    "an issuer in single brackets": (
        "[auth.issuers]\nissuer = 'https://a.example'\n",
        {},
        ("auth.issuers: must be tables", "[[auth.issuers]]"),
    ),
    "a text for a list": (
        "[[policies]]\ntools = '*'\n",
        {},
        ("policies.0.tools: must be a list", '["a", "b"]'),
    ),
    "rules from the environment that are no JSON": (
        "",
        {"MCP__POLICIES": "[{tools: *}]"},
        ("environment MCP__POLICIES", "JSON"),
    ),
    "a misspelt key within a variable": (
        "",
        {"MCP__POLICIES": '[{"tool": ["*"]}]'},
        ("environment MCP__POLICIES", "policies.0.tool", '"tools"'),
    ),
    "a number for a schema": (
        "[[policies]]\ntools = ['*']\narguments = { rows = 100 }\n",
        {},
        ("policies.0.arguments.rows: must be a table",),
    ),
    "a rate for no tool": (
        "[[limits.rates]]\nbucket = 'user'\ncapacity = 5\nperiod_s = 60\n",
        {},
        ("limits.rates.0.tools", "required"),
    ),
    "a rate of a bucket that there is not": (
        "[[limits.rates]]\ntools = ['*']\nbucket = 'session'\ncapacity = 5\nperiod_s = 60\n",
        {},
        ("limits.rates.0.bucket", "'tool', 'user', 'tenant' or 'user-tool'"),
    ),
    "a rate of half a call": (
        "[limits]\nlist_rates = [{ bucket = 'user', capacity = 0.5, period_s = 60 }]\n",
        {},
        ("limits.list_rates.0.capacity", "integer"),
    ),
    "a list by tool": (
        "[limits]\nlist_rates = [{ bucket = 'tool', capacity = 5, period_s = 60 }]\n",
        {},
        ("limits.list_rates", 'its bucket is "user" or "tenant", not "tool"'),
    ),
    "a rate that would count twice": (
        "[[limits.rates]]\ntools = ['*']\nbucket = 'user'\ncapacity = 5\nperiod_s = 60\n" * 2,
        {},
        ("limits", "entries 1 and 2 differ in nothing but the capacity"),
    ),
    "a rate of a tool": (
        "[overrides.a]\nrate_limit = { bucket = 'user', capacity = 5, period = 60 }\n",
        {},
        ("overrides.a.rate_limit.period", '"period_s"'),
    ),
    "a rule about no tool": ("[[policies]]\n", {}, ("policies.0", "tools", "annotations")),
    "a rule with a misspelt key": (
        "[[policies]]\ntools = ['*']\nrequires = { scops = ['a'] }\n",
        {},
        ("policies.0.requires.scops", '"scopes"'),
    ),
    "a clearance that there is not": (
        "[[policies]]\ntools = ['*']\nrequires = { clearance = 'top' }\n",
        {},
        ("rule 1", "'top'", "low, medium, high"),
    ),
    "an issuer over plain HTTP": (
        (
            "[server]\npublic_url = 'https://a.example'\n"
            "[[auth.issuers]]\nissuer = 'http://login.example'\n"
        ),
        {},
        ("auth.issuers.0.issuer", "https://"),
    ),
    "an issuer without a URL of our own": (
        "[server]\nhost = '0.0.0.0'\n[[auth.issuers]]\nissuer = 'https://login.example'\n",
        {},
        ("public_url",),
    ),
    "a shared secret as a signature": (
        "[[auth.issuers]]\nissuer = 'https://login.example'\nalgorithms = ['HS256']\n",
        {},
        ("auth.issuers.0.algorithms.0",),
    ),
    "two issuers that would be asked": (
        (
            "[[auth.issuers]]\nissuer = 'https://a.example'\n"
            "introspection = { client_id = 'a', client_secret = 'b' }\n"
            "[[auth.issuers]]\nissuer = 'https://b.example'\n"
            "introspection = { client_id = 'a', client_secret = 'b' }\n"
        ),
        {},
        ("only one issuer", "opaque"),
    ),
    "an introspection without a secret": (
        "[[auth.issuers]]\nissuer = 'https://a.example'\nintrospection = { client_id = 'a' }\n",
        {},
        ("auth.issuers.0.introspection", "client_secret_file"),
    ),
    "a circle of scopes": (
        "[auth.scope_hierarchy]\na = ['b']\nb = ['a']\n",
        {},
        ("scope_hierarchy", "circle"),
    ),
    "a scope for refreshing": (
        "[auth]\nscopes_supported = ['offline_access']\n",
        {},
        ("auth.scopes_supported", "offline_access"),
    ),
    "a hash that is none": (
        "[[auth.api_keys]]\nid = 'a'\nhash = 'sha256:1'\n",
        {},
        ("auth.api_keys.0.hash", "64 hexadecimal digits", "keys create"),
    ),
    "administrators without a key": (
        "",
        {"MCP__ADMIN__PORT": "1"},
        ("admin: port needs keys or keys_file", "keys create --admin"),
    ),
    "administrators where clients are": (
        '[admin]\nport = 8000\nkeys_file = "keys.toml"\n',
        {},
        ("admin.port is 8000, as server.port is",),
    ),
    "an administrator with grants": (
        f'[admin]\nkeys = [{{ id = "a", hash = "sha256:{"0" * 64}", scopes = ["x"] }}]\n',
        {},
        ("admin.keys", "'a' has grants"),
    ),
    "an unknown variable": ("", {"MCP__SERVER__PROT": "1"}, ("MCP__SERVER__PROT", '"port"')),
    "an unknown section in a variable": ("", {"MCP__SRV__X": "1"}, ("MCP__SRV__X", "srv")),
    "a variable without a key": ("", {"MCP__SERVER": "1"}, ("MCP__SECTION__KEY",)),
}


@pytest.mark.parametrize(("text", "env", "said"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_is_wrong_is_told_with_place_and_remedy(
    tmp_path: Path, text: str, env: dict[str, str], said: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _load(tmp_path, text, env)
    for words in said:
        assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _load(tmp_path, "[server]\nport = -1\nprot = 1\n[tools]\npage_size = 0\n")
    assert len(raised.value.problems) == 3
