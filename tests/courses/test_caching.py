"""Kept results: given again to whom they belong, and to nobody else."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.asking.rounds import accept, ask, questions, state_of
from tests.auth.office import Headers
from tests.courses.conftest import ADA, BOB, CONFIG, EVE, TOOLS
from tests.support.cases import rows
from tests.support.client import McpClient, Reply, meta
from tests.support.server import ServerFactory
from tests.support.toolfiles import write
from tests.support.waiting import eventually

CACHE = "mcp-tool-server/cache"


def word(reply: Reply) -> str | None:
    """`hit`, `miss` or nothing."""
    found: str | None = reply.result["_meta"].get(CACHE)
    return found


def test_an_equal_call_gets_the_kept_result_and_a_word_about_it(client: McpClient) -> None:
    first = client.call("mine", {"text": "a"}, ADA)
    second = client.call("mine", {"text": "a"}, ADA)
    assert (word(first), word(second)) == ("miss", "hit")
    assert first.result["structuredContent"] == second.result["structuredContent"]
    assert first.result["content"] == second.result["content"]


@rows(
    "tool, whose",
    ("the caller's own", "mine", [ADA]),
    ("the tenant's", "ours", [ADA, BOB]),
    ("everybody's", "everybodys", [ADA, BOB, EVE, {}]),
)
def test_who_shares_a_result_is_as_the_tool_says(
    client: McpClient, tool: str, whose: list[Headers]
) -> None:
    arguments = {"text": f"whose {tool}"}
    assert word(client.call(tool, arguments, whose[0])) == "miss"
    for who in (ADA, BOB, EVE, {}):
        expected = "hit" if who in whose else "miss"
        assert word(client.call(tool, arguments, who)) == expected, who


@rows(
    "tool",
    ("in the loop", "mine"),
    ("in a thread", "ours"),
    ("in a process", "apart"),
)
def test_every_mode_of_running_keeps_results(client: McpClient, tool: str) -> None:
    words = [word(client.call(tool, {"text": "mode"}, EVE)) for _ in range(3)]
    assert words == ["miss", "hit", "hit"]


@rows(
    "one, other, same",
    ("order of members", {"text": "o", "region": "us"}, {"region": "us", "text": "o"}, True),
    ("another value", {"text": "v", "region": "us"}, {"text": "v", "region": "eu"}, False),
    ("another case", {"text": "c"}, {"text": "C"}, False),
)
def test_arguments_are_compared_as_values(
    client: McpClient, one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    def sent(arguments: dict[str, Any]) -> Reply:
        headers = {"Mcp-Param-Region": arguments.get("region")}
        return client.call("mine", arguments, {**BOB, **headers})

    sent(one)
    reply = sent(other)
    assert word(reply) == ("hit" if same else "miss")
    if "region" in other:
        assert reply.header("Mcp-Param-Region") == other["region"]


def test_a_kept_result_ends_with_its_time(client: McpClient) -> None:
    assert word(client.call("briefly", {"text": "a"})) == "miss"
    eventually(
        lambda: client.call("briefly", {"text": "a"}).value["run"] > 1, "a second run of the tool"
    )


def test_what_the_client_adds_to_its_request_counts_where_a_tool_can_see_it(
    client: McpClient,
) -> None:
    def sent(locale: str, token: int) -> Reply:
        own = meta(**{"example.com/locale": locale, "progressToken": token})
        return client.call("by_locale", {"text": "a"}, meta_=own)

    first, second, third = sent("de", 1), sent("de", 2), sent("fr", 3)
    assert [word(each) for each in (first, second, third)] == ["miss", "hit", "miss"]
    assert [each.value["locale"] for each in (first, second, third)] == ["de", "de", "fr"]


def test_equal_calls_at_once_run_once(client: McpClient) -> None:
    begin = threading.Barrier(16)

    def sent(_: int) -> Reply:
        begin.wait(10)
        return client.call("everybodys", {"text": "at once", "wait_s": 0.5})

    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(sent, range(16)))
    assert len({reply.value["run"] for reply in replies}) == 1
    assert sorted(map(str, map(word, replies))) == ["hit"] * 15 + ["miss"]


def test_when_the_one_that_runs_goes_away_another_takes_its_place(client: McpClient) -> None:
    arguments = {"text": "gone", "wait_s": 1}
    before = client.call("how_often", {"name": "everybodys"}).value
    with client.connect() as connection:
        request = client.request("tools/call", {"name": "everybodys", "arguments": arguments})
        connection.send(request.encode())
        eventually(
            lambda: client.call("how_often", {"name": "everybodys"}).value == before + 1, "it runs"
        )
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(client.call, "everybodys", arguments) for _ in range(4)]
            connection.close()
            replies = [each.result(10) for each in waiting]
    assert {reply.value["run"] for reply in replies} == {before + 2}
    assert sorted(str(word(reply)) for reply in replies) == ["hit"] * 3 + ["miss"]


def test_an_error_is_not_kept(client: McpClient) -> None:
    first = client.call("failing", {"text": "a"})
    second = client.call("failing", {"text": "a"})
    third = client.call("failing", {"text": "a"})
    assert first.is_error and word(second) == "miss" and word(third) == "hit"


def test_a_call_that_asked_is_never_kept_and_one_that_did_not_is(client: McpClient) -> None:
    for _ in range(2):
        first = ask(client, "asking", {"text": "a"})
        assert questions(first) and word(first) is None
        answers = {"color": accept(color="red")}
        done = ask(client, "asking", {"text": "a"}, answers, state_of(first))
        assert done.value["color"] == "red"
        assert word(done) is None
    quiet = [ask(client, "asking", {"text": "a", "ask": False}) for _ in range(2)]
    assert [word(each) for each in quiet] == ["miss", "hit"]


def test_rules_are_asked_before_what_is_kept(server_factory: ServerFactory) -> None:
    rules = [{"tools": ["everybodys"], "requires": {"tenants": ["acme"]}}, {"tools": ["*"]}]
    server = server_factory(TOOLS, {**CONFIG, "policies": rules})
    assert word(server.client.call("everybodys", {"text": "r"}, ADA)) == "miss"
    assert server.client.call("everybodys", {"text": "r"}, EVE).code == -32602
    assert word(server.client.call("everybodys", {"text": "r"}, BOB)) == "hit"


@pytest.mark.parametrize("kept", [0, 4096])
def test_no_more_is_kept_than_there_is_room_for(server_factory: ServerFactory, kept: int) -> None:
    server = server_factory(TOOLS, {**CONFIG, "execution": {"cache_bytes": kept, "processes": 1}})
    texts = [f"{number:05}" for number in range(20)]
    for text in texts:
        assert word(server.client.call("mine", {"text": text})) == "miss"
    words = [word(server.client.call("mine", {"text": text})) for text in reversed(texts)]
    assert words.count("hit") == (0 if kept == 0 else words.index("miss"))
    assert words.count("hit") < 10


def test_new_code_and_new_settings_forget_what_was_kept(
    server_factory: ServerFactory, tmp_path: Any
) -> None:
    text = (
        "from app import Context, tool\n\n\n"
        '@tool(annotations={"read_only": True}, cache_ttl_s=60)\n'
        "async def told(ctx: Context) -> str:\n"
        '    """Tell."""\n'
        '    return "one " + str(ctx.settings.get("word"))\n'
    )
    write(tmp_path / "told.py", text)
    server = server_factory(tmp_path, {"tools": {"reload": True}})
    assert [word(server.client.call("told")) for _ in range(2)] == ["miss", "hit"]
    write(tmp_path / "told.py", text.replace("one", "two"))
    eventually(lambda: server.client.call("told").text == "two None", "the new code")
    server.write_config(
        {"tools": {"reload": True}, "overrides": {"told": {"settings": {"word": "x"}}}}
    )
    eventually(lambda: server.client.call("told").text == "two x", "the new settings")
    server.write_config({"tools": {"reload": True}, "overrides": {"told": {"cache_ttl_s": 0}}})
    eventually(lambda: word(server.client.call("told")) is None, "no word of a cache")
