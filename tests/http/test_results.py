"""What tools return, and what becomes of it on the wire."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.http1 import strict_json
from tests.support.server import ServerProcess
from tests.support.waiting import eventually_lines

SECRET = "hunter2"


@rows(
    "tool, value, text",
    ("str", "give_str", "plain", "plain"),
    ("int", "give_int", 42, "42"),
    ("float", "give_float", 0.1, "0.1"),
    ("bool", "give_bool", True, "true"),
    ("RS-07 None", "give_none", None, "null"),
    ("dict", "give_dict", {"b": 1, "a": 2}, None),
    ("list", "give_list", [1, 2, 3], None),
    ("model", "give_model", {"x": 1, "y": 2}, None),
    ("dataclass", "give_dataclass", {"width": 3, "height": 4}, None),
    ("TypedDict", "give_typed_dict", {"name": "n"}, None),
)
def test_plain_data_is_structured_content_and_its_json_as_text(
    client: McpClient, tool: str, value: Any, text: str | None
) -> None:
    """SC-12: schema and structured content agree (a scalar may be wrapped, in both)."""
    reply = client.call(tool)
    schema = client.tools()[tool].get("outputSchema")
    structured = reply.value
    if structured != value:
        assert structured == {"result": value}
        assert schema is not None and schema["type"] == "object"
    assert len(reply.result["content"]) == 1
    if text is not None:
        assert reply.text == text
    else:
        assert strict_json(reply.text.encode()) in (value, structured)


def test_an_instant_is_given_as_text(client: McpClient) -> None:
    assert str(client.call("give_datetime").text).strip('"') in (
        "2026-07-28T12:00:00Z",
        "2026-07-28T12:00:00+00:00",
    )


@rows(
    "kind, text, value",
    ("RS-07 list", "list", "[]", []),
    ("RS-07 tuple", "tuple", "[]", []),
    ("RS-07 dict", "dict", "{}", {}),
    ("RS-07 str", "str", "", ""),
    ("RS-07 nothing", "none", "null", None),
)
def test_something_empty_still_has_a_block(
    client: McpClient, kind: str, text: str, value: Any
) -> None:
    reply = client.call("give_empty", {"kind": kind})
    (block,) = reply.result["content"]
    assert block["type"] == "text"
    assert block["text"] in (text, '""')
    assert reply.value in (value, {"result": value})


def test_every_kind_of_block_reaches_the_client(client: McpClient) -> None:
    """wire §5 every content kind."""
    (image,) = client.call("give_image").result["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG")
    (audio,) = client.call("give_audio").result["content"]
    assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
    (link,) = client.call("give_link").result["content"]
    assert link == {
        "type": "resource_link",
        "uri": "https://example.com/a",
        "name": "a",
        "title": "A",
        "mimeType": "text/plain",
        "size": 3,
    }
    (text,) = client.call("give_embedded_text").result["content"]
    assert text["resource"] == {"uri": "note://a", "text": "hello", "mimeType": "text/plain"}
    (blob,) = client.call("give_embedded_blob").result["content"]
    assert base64.b64decode(blob["resource"]["blob"]) == b"\x00\x01"


def test_blocks_and_text_mix_in_their_order(client: McpClient) -> None:
    kinds = [block["type"] for block in client.call("give_mixture").result["content"]]
    assert kinds == ["text", "image", "resource_link"]


def test_annotations_and_meta_of_a_block_are_sent(client: McpClient) -> None:
    (block,) = client.call("give_text_block").result["content"]
    assert block["annotations"]["audience"] == ["user"]
    assert block["annotations"]["priority"] == 0.9
    assert block["annotations"]["lastModified"].startswith("2026-07-28T00:00:00")
    assert block["_meta"] == {"example.com/k": 1}


def test_blocks_have_no_structured_content(client: McpClient) -> None:
    for tool in ("give_image", "give_mixture", "give_text_block", "give_unstructured"):
        assert "structuredContent" not in client.call(tool).result
        assert "outputSchema" not in client.tools()[tool]


def test_a_whole_result_is_sent_as_it_is(client: McpClient) -> None:
    result = client.call("give_result").result
    assert [block["type"] for block in result["content"]] == ["text", "audio"]
    assert result["structuredContent"] == {"n": 1}
    assert result["_meta"]["example.com/cost"] == 2


def test_reserved_meta_cannot_be_forged(client: McpClient) -> None:
    reply = client.call("give_reserved_meta")
    assert reply.is_error
    assert "evil" not in reply.response.body.decode()


def test_a_failure_may_be_returned(client: McpClient) -> None:
    reply = client.call("fail_with_result")
    assert reply.is_error
    assert reply.text == "no such city"


# -- failures ------------------------------------------------------------------


@rows(
    "tool",
    ("RS-12 in a thread", "fail"),
    ("RS-12 in the loop", "fail_async"),
    ("RS-12 chained", "fail_chained"),
    ("RS-12 group", "fail_group"),
    ("RS-12 unprintable", "fail_unprintable"),
    ("RS-12 sys.exit in a thread", "fail_exit"),
    ("RS-12 SystemExit in the loop", "fail_exit_async"),
    ("RS-12 KeyboardInterrupt in the loop", "fail_interrupt_async"),
    ("RS-12 a cancellation of its own", "fail_cancelled_async"),
    ("RS-12 StopAsyncIteration", "fail_stop_iteration"),
)
def test_an_exception_is_told_to_the_log_alone(
    client: McpClient, server: ServerProcess, tool: str
) -> None:
    """wire §5 tool raises, RS-14: 200 and isError, neither 5xx nor -32603."""
    mark = server.log_mark()
    reply = client.call(tool)
    assert reply.status == 200
    assert reply.is_error
    assert "structuredContent" not in reply.result
    body = reply.response.body.decode()
    for leak in (SECRET, "postgres", "Error", "Traceback", ".py", "site-packages"):
        assert leak not in body.replace("isError", ""), leak
    line = server.wait_for_log(lambda log: error_id(log) in reply.text, after=mark)
    assert "fail" in str(line) or "exception" in str(line)
    assert client.call("echo", {"text": "next"}).value == "next"


def error_id(log: dict[str, Any]) -> str:
    """The id that ties a log line to the answer; something that never matches without one."""
    return str(log.get("error_id") or "\x00 no id")


def test_the_traceback_is_in_the_log(client: McpClient, server: ServerProcess) -> None:
    """RS-12."""
    mark = server.log_mark()
    reply = client.call("fail_chained")
    line = server.wait_for_log(lambda log: error_id(log) in reply.text, after=mark)
    text = str(line)
    assert "RuntimeError" in text and "KeyError" in text and "failing.py" in text


def test_two_failures_have_two_ids(client: McpClient) -> None:
    assert client.call("fail").text != client.call("fail").text


def test_a_failing_tool_runs_once(client: McpClient, tmp_path: Path) -> None:
    """RS-14, without the load balancer."""
    notes = tmp_path / "notes"
    assert client.call("fail", {"path": str(notes)}).is_error
    assert client.call("no_arguments").value == "done"
    assert eventually_lines(notes, "ran") == ["ran"]


def test_an_error_for_the_model_keeps_its_text(client: McpClient) -> None:
    """RS-02: and is not held against the output schema."""
    reply = client.call("fail_for_the_model")
    assert reply.is_error
    assert reply.text == "The date must lie in the future."
    assert "structuredContent" not in reply.result


@pytest.mark.parametrize("how", ["other", "extra", "type", "none"])
def test_a_result_that_breaks_its_schema_is_never_a_success(
    client: McpClient, server: ServerProcess, how: str
) -> None:
    """RS-01, wire §5 output violates outputSchema."""
    mark = server.log_mark()
    reply = client.call("breaks_its_schema", {"how": how})
    assert reply.status == 200
    assert reply.is_error
    assert "structuredContent" not in reply.result
    assert SECRET not in reply.response.body.decode()
    server.wait_for_log(lambda log: error_id(log) in reply.text, after=mark)


def test_a_result_that_keeps_its_schema_is_a_success(client: McpClient) -> None:
    """RS-01."""
    assert client.call("breaks_its_schema", {"how": "right"}).value == {"n": 1}


# -- values that JSON does not have ----------------------------------------------


@rows(
    "tool, arguments",
    ("RS-04 set", "give_set", {}),
    ("RS-04 generator", "give_unserialisable", {"kind": "generator"}),
    ("RS-04 object", "give_unserialisable", {"kind": "object"}),
    ("RS-04 function", "give_unserialisable", {"kind": "function"}),
    ("RS-04 cycle", "give_unserialisable", {"kind": "cycle"}),
    ("RS-04 nested", "give_unserialisable", {"kind": "nested"}),
    ("RS-04 open file", "give_unserialisable", {"kind": "file"}),
)
def test_a_value_without_json_form_is_an_error(
    client: McpClient, tool: str, arguments: dict[str, str]
) -> None:
    reply = client.call(tool, arguments)
    assert reply.status == 200
    assert reply.is_error
    assert " at 0x" not in reply.response.body.decode()
    assert "structuredContent" not in reply.result


@rows(
    "where, path",
    ("RS-06 root", "root", ""),
    ("RS-06 nested", "nested", "ratio"),
    ("RS-06 list", "list", "1"),
)
def test_not_a_number_is_an_error_that_names_the_place(
    client: McpClient, where: str, path: str
) -> None:
    """wire §0.10."""
    reply = client.call("give_not_a_number", {"where": where})
    assert reply.is_error
    assert path in reply.text
    assert "structuredContent" not in reply.result


def test_not_a_number_is_an_error_under_a_number_schema(client: McpClient) -> None:
    """RS-06."""
    assert client.call("give_ratio").is_error


@pytest.mark.parametrize("where", ["root", "key", "value"])
def test_text_without_utf8_form_never_leaves(client: McpClient, where: str) -> None:
    """AR-21, wire §0.10."""
    reply = client.call("give_surrogate", {"where": where})
    assert reply.status == 200
    assert reply.is_error or "\ufffd" in reply.text
    assert client.call("echo", {"text": "next"}).value == "next"


def test_a_dict_that_looks_like_a_block_is_data(client: McpClient) -> None:
    """RS-09: content blocks are made by their own types, never guessed from a dict."""
    reply = client.call("give_own_block")
    assert [block["type"] for block in reply.result["content"]] == ["text"]
    assert reply.value == {"type": "json", "json": {"a": 1}}


def test_content_that_is_no_block_is_an_error(client: McpClient) -> None:
    """RS-09."""
    assert client.call("give_bad_content").is_error


# -- size --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1000, 400_000])
def test_a_large_result_below_the_limit_is_sent(client: McpClient, count: int) -> None:
    """RS-11. (Text is sent twice: as text and as structured content.)"""
    assert len(client.call("give_large", {"count": count}).text) == count


@pytest.mark.parametrize("count", [1_000_000, 10_000_000])
def test_a_result_over_the_limit_is_an_error_that_says_so(client: McpClient, count: int) -> None:
    """RS-11."""
    reply = client.call("give_large", {"count": count})
    assert reply.is_error
    assert "921" in reply.text  # 900 KiB
    assert len(reply.response.body) < 5000


def test_an_error_over_the_limit_is_cut(client: McpClient) -> None:
    """RS-11: the limit is for every result."""
    reply = client.call("fail_at_length", {"count": 2_000_000})
    assert reply.is_error
    assert len(reply.response.body) < 921_600


def test_large_results_do_not_hold_up_the_others(client: McpClient) -> None:
    """RS-11: health is answered while large results are made."""
    connections = [client.connect(30) for _ in range(8)]
    for connection in connections:
        request = client.request(
            "tools/call", {"name": "give_large", "arguments": {"count": 10**7}}
        )
        connection.send(request.encode())
    assert client.get("/healthz").status == 200
    for connection in connections:
        assert connection.read_response(timeout_s=30).json()["result"]["isError"] is True
        connection.close()
