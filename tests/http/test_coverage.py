"""Every rule that the endpoint must keep has a test, or a reason why it has none here.

`REQUIRED` names the rules as the tests do: `wire §N ...` are the rows of the table of inputs
(body, HTTP, standard headers, parameter headers, `_meta` and methods, listening), `wire §0.N`
its decisions, and `XX-NN` the cases from the field. To find the tests of a rule, search for its
name.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
FOLDERS: Final = (HERE, HERE.parent / "life")

DECISIONS: Final = """
wire §0.1 | wire §0.2 | wire §0.3 | wire §0.4 | wire §0.5 | wire §0.7 | wire §0.8 | wire §0.9
wire §0.10 | wire §0.11 | wire §0.12 | wire §0.13 | wire §0.16 | wire §0.17 | wire §0.18
"""

BODY: Final = """
wire §1 unparsable | wire §1 empty body | wire §1 whitespace body | wire §1 trailing garbage
wire §1 invalid UTF-8 | wire §1 BOM | wire §1 UTF-16 | wire §1 array | wire §1 empty array
wire §1 scalar | wire §1 null body | wire §1 string body | wire §1 jsonrpc missing
wire §1 jsonrpc 1.0 | wire §1 method missing | wire §1 method not a string | wire §1 id null
wire §1 id true | wire §1 id 1.5 | wire §1 id array | wire §1 id object | wire §1 id 1.0
wire §1 id 1e2 | wire §1 id > 2^53 | wire §1 id empty string | wire §1 id absent
wire §1 params array | wire §1 params null | wire §1 params absent | wire §1 duplicate keys
wire §1 unknown member | wire §1 result beside method | wire §1 nesting 100k | wire §1 NaN
wire §1 Infinity | wire §1 1e999 | wire §1 5000 digits | wire §1 lone surrogate
wire §1 over limit | wire §1 oversized Content-Length
"""

HTTP: Final = """
wire §2 content type | wire §2 content type missing | wire §2 content type text
wire §2 content type in a parameter | wire §2 content type json-rpc | wire §2 content type list
wire §2 accept both | wire §2 accept anything | wire §2 accept wildcards | wire §2 accept case
wire §2 accept order | wire §2 accept q | wire §2 accept missing | wire §2 accept only json
wire §2 accept only sse | wire §2 accept only application | wire §2 accept html
wire §2 accept q=0 | wire §2 accept two lines | wire §2 GET | wire §2 DELETE | wire §2 PUT
wire §2 PATCH | wire §2 HEAD | wire §2 OPTIONS | wire §2 preflight | wire §2 CORS
wire §2 origin disallowed | wire §2 origin null | wire §2 origin empty | wire §2 origin garbage
wire §2 origin localhost.evil.com | wire §2 origin absent | wire §2 origin https localhost
wire §2 origin loopback address | wire §2 host bad
"""

STANDARD_HEADERS: Final = """
wire §3 version missing | wire §3 version empty | wire §3 version mismatch
wire §3 unknown version | wire §3 garbage version | wire §3 legacy version in both
wire §3 body version non-string | wire §3 method missing | wire §3 method mismatch
wire §3 method case | wire §3 method base64 | wire §3 white space | wire §3 duplicate header
wire §3 duplicate header, same value | wire §3 name missing | wire §3 name empty
wire §3 name mismatch | wire §3 name case | wire §3 sentinel valid | wire §3 sentinel padding
wire §3 sentinel alphabet | wire §3 sentinel url-safe | wire §3 sentinel bad UTF-8
wire §3 sentinel trailing bits | wire §3 sentinel upper case | wire §3 sentinel without prefix
wire §3 sentinel without suffix | wire §3 sentinel decodes to nothing
wire §3 sentinel that overlaps | wire §3 raw non-ASCII | wire §3 literal sentinel-looking name
wire §3 name on other methods | wire §3 params.name absent | wire §3 session id
wire §3 last event id
"""

PARAMETER_HEADERS: Final = """
wire §4 header missing | wire §4 header differs | wire §4 header differs by case
wire §4 absent without header | wire §4 null without header | wire §4 absent with header
wire §4 null with header | wire §4 42.0 | wire §4 42.00 | wire §4 42 vs 4.2e1
wire §4 42 vs 042 | wire §4 42 vs +42 | wire §4 42.5 | wire §4 0x2a | wire §4 body 42.0
wire §4 2^53+1 | wire §4 True | wire §4 TRUE | wire §4 1 for true | wire §4 false, header missing
wire §4 empty value, empty header | wire §4 empty value, no header | wire §4 spaces raw
wire §4 spaces encoded | wire §4 plain value encoded | wire §4 sentinel-looking raw
wire §4 sentinel-looking encoded | wire §4 nested value | wire §4 nested, parent null
wire §4 nested, parent absent | wire §4 nested, parent scalar | wire §4 nested p.q
wire §4 duplicate header | wire §4 array value in an annotated integer | wire §4 unknown tool
wire §4 unannotated | wire §4 fails closed
"""

METHODS: Final = """
wire §5 _meta missing | wire §5 _meta empty | wire §5 no protocolVersion
wire §5 no clientCapabilities | wire §5 clientInfo absent | wire §5 clientCapabilities null
wire §5 clientCapabilities string | wire §5 clientInfo malformed | wire §5 clientInfo null
wire §5 logLevel unknown | wire §5 logLevel absent | wire §5 progressToken
wire §5 progressToken 1.5 | wire §5 progressToken null | wire §5 progressToken array
wire §5 progressToken true | wire §5 unknown method | wire §5 ping | wire §5 initialize
wire §5 logging/setLevel | wire §5 resources/subscribe | wire §5 unadvertised prompts
wire §5 unadvertised resources | wire §5 unknown tool | wire §5 arguments array
wire §5 name int | wire §5 arguments null | wire §5 schema-invalid arguments
wire §5 tool raises | wire §5 output violates outputSchema | wire §5 invalid cursor
wire §5 cursor non-string | wire §5 every result | wire §5 serverInfo | wire §5 discover
wire §5 tools/list cache fields | wire §5 deterministic order | wire §5 SSE response
wire §5 errors after SSE started | wire §5 notification cancelled | wire §5 notification unknown
wire §5 notification initialized | wire §5 notification without Mcp-Method
wire §5 notification Mcp-Method mismatch | wire §5 notification unsupported version
wire §5 notification params array | wire §5 posted response | wire §5 concurrent same id
wire §5 disconnect | wire §5 disconnect in JSON mode | wire §5 every content kind
"""

LISTENING: Final = """
wire §6 open | wire §6 still SSE | wire §6 Accept lacks SSE | wire §6 unsupported kind
wire §6 unknown key | wire §6 false | wire §6 notifications missing | wire §6 notifications null
wire §6 wrong type | wire §6 nothing honoured | wire §6 unrequested kinds
wire §6 graceful end | wire §6 keep-alive | wire §6 capacity | wire §6 progress/message
wire §6 taskIds | wire §6 tasks/get | wire §6 tasks/cancel | wire §6 tasks/list
wire §6 tasks/result
"""

FIELD: Final = """
ST-01 | ST-06 | ST-07 | ST-09 | ST-11 | ST-14 | ST-16 | ST-17
CX-01 | CX-02 | CX-04 | CX-06 | CX-07
LC-01 | LC-02 | LC-04 | LC-06 | LC-07 | LC-09 | LC-14 | LC-16 | LC-17
PG-01 | PG-02 | PG-04 | PG-06 | PG-07
AR-01 | AR-02 | AR-04 | AR-06 | AR-07 | AR-09 | AR-11 | AR-12 | AR-14 | AR-16 | AR-17 | AR-19
AR-21 | AR-22 | AR-24
SC-01 | SC-02 | SC-04 | SC-06 | SC-07 | SC-09 | SC-11 | SC-12
RS-01 | RS-02 | RS-04 | RS-06 | RS-07 | RS-09 | RS-11 | RS-12 | RS-14
PR-01 | PR-02 | PR-06 | PR-07 | PR-09 | PR-11 | PR-12
HD-01 | HD-02 | HD-04 | HD-06 | HD-07 | HD-09 | HD-11 | HD-12 | HD-14 | HD-16 | HD-17 | HD-19
CO-01 | CO-02 | CO-04 | CO-06 | CO-07 | CO-09
RT-01 | RT-06
SH-01 | SH-02 | SH-04 | SH-06 | SH-07 | SN-04 | SN-06 | SN-09 | EX-01 | EX-04 | EX-06 | EX-09
"""

REQUIRED: Final = tuple(
    name.strip()
    for table in (
        DECISIONS,
        BODY,
        HTTP,
        STANDARD_HEADERS,
        PARAMETER_HEADERS,
        METHODS,
        LISTENING,
        FIELD,
    )
    for name in re.split(r"[|\n]", table.strip())
)

PROXY: Final = "needs a proxy in front: part of the load balancer's tests"
LEGACY: Final = "needs the earlier revisions, which are not served yet"
AUTH: Final = "needs authentication, which is not served yet"
ASKING: Final = "needs a tool that asks back (`input_required`), which is not served yet"
REPLICAS: Final = "needs several replicas and a shared store"

EXCLUDED: Final[Mapping[str, str]] = {
    "ST-02": f"{PROXY}; its part without one is tested here",
    "ST-04": f"{PROXY}; its part without one is tested here",
    "ST-12": LEGACY,
    "LC-11": AUTH,
    "LC-12": REPLICAS,
    "PG-09": AUTH,
    "PR-04": f"{LEGACY}; the answer until then is tested here",
    "RT-02": "needs a server under a sub-path, which only a proxy or another application gives it",
    "RT-04": f"{PROXY}; its part without one is tested here",
    "RT-07": PROXY,
    "wire §0.6": "held by the harness for every answer: an id is left out or is one",
    "wire §0.14": LEGACY,
    "wire §0.15": LEGACY,
    "wire §4 type: number annotated": "a load error, tested as SC-09",
    "wire §5 handler internal failure": "nothing that a client can send leads there",
    "wire §5 missing client capability": ASKING,
    "wire §5 MRTR": ASKING,
    "wire §6 JSON-only server mode": "there is no such mode",
    "wire §6 taskIds without the extension": "decided otherwise by §0.18: they are dropped",
}


def sources() -> str:
    """The text of all other test files, here and of how a server begins and ends."""
    found = (path for folder in FOLDERS for path in folder.glob("test_*.py"))
    files = sorted(path for path in found if path.name != Path(__file__).name)
    return "\n".join(path.read_text("utf-8") for path in files)


@pytest.mark.parametrize("rule", REQUIRED)
def test_a_rule_has_a_test(rule: str) -> None:
    # The name must end there: `wire §0.1` is not tested by a mention of `wire §0.10`.
    assert re.search(re.escape(rule) + r"(?![\w-]|\.\d)", sources()), f"no test names {rule!r}"


def test_a_rule_is_required_or_excluded_and_listed_once() -> None:
    assert len(set(REQUIRED)) == len(REQUIRED)
    assert not set(REQUIRED) & set(EXCLUDED)
    assert all(EXCLUDED.values())


def test_a_test_names_only_rules_that_exist() -> None:
    named = set(re.findall(r"\b(?:ST|CX|LC|PG|AR|SC|RS|PR|HD|CO|RT)-\d\d\b", sources()))
    assert named <= {*REQUIRED, *EXCLUDED}, named - {*REQUIRED, *EXCLUDED}
