"""Hot reload: tools come, break, mend, move and go while calls run and clients listen.

Each test writes into a folder that a server watches. A change that nobody can see must be heard
by nobody; to show that nothing came, a test makes a visible change after it, and then hears
exactly one notification.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ServerFactory, ServerProcess
from tests.support.toolfiles import write, write_tool
from tests.support.waiting import eventually, eventually_lines
from tests.support.workshop import SETTINGS, SOON_S, Workshop, restore, workshop


@pytest.fixture(scope="module")
def watching(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    """One server for most tests: what each of them leaves behind is cleared before the next."""
    folder = tmp_path_factory.mktemp("tools")
    write_tool(folder, "old", "one")
    return module_server_factory(folder, SETTINGS)


@pytest.fixture
def shop(watching: ServerProcess) -> Iterator[Workshop]:
    """A workshop with one tool, `old`, that says `one`."""
    restore(watching)
    with workshop(watching) as shop:
        yield shop


def test_a_new_file_is_served_and_heard_once(shop: Workshop) -> None:
    write_tool(shop.folder, "new", "n")
    shop.hears_one_change()
    assert set(shop.client.tools()) == {"new", "old"}
    assert shop.says("new") == "n"


@pytest.mark.parametrize("attempt", range(3))
def test_a_change_at_the_moment_of_readiness_is_not_missed(
    server_factory: ServerFactory, tmp_path: Path, attempt: int
) -> None:
    """Neither in the folder nor in the configuration: the first list was made before."""
    write_tool(tmp_path, "old")
    server = server_factory(tmp_path, SETTINGS)
    write_tool(tmp_path, "new")
    server.write_config(SETTINGS | {"overrides": {"old": {"title": "Old"}}})
    eventually(lambda: "new" in server.client.tools(), "the new tool", SOON_S)
    eventually(lambda: "title" in server.client.tools()["old"], "the new title", SOON_S)


def test_a_new_folder_is_a_prefix(shop: Workshop) -> None:
    write_tool(shop.folder / "finance", "convert", "c")
    shop.hears_change()
    eventually(lambda: "finance.convert" in shop.client.tools(), "the tool", SOON_S)
    assert shop.says("finance.convert") == "c"


def test_a_file_that_breaks_keeps_its_last_good_tools_and_says_so(shop: Workshop) -> None:
    """Broken, mended with no visible change, then with one: only that is heard."""
    mark = shop.server.log_mark()
    write(shop.folder / "old.py", "from app import tool\n\ndef broken(:\n")
    shop.logged("old.py", after=mark)
    assert shop.says("old") == "one"
    assert set(shop.client.tools()) == {"old"}
    write_tool(shop.folder, "old", "two")
    eventually(lambda: shop.says("old") == "two", "the mended tool", SOON_S)
    write_tool(shop.folder, "old", "two", description="Answer differently.")
    shop.hears_one_change()
    assert shop.client.tools()["old"]["description"] == "Answer differently."


def test_a_broken_file_does_not_hold_up_the_others(shop: Workshop) -> None:
    write(shop.folder / "old.py", "raise RuntimeError('no database')\n")
    write_tool(shop.folder, "new", "n")
    shop.hears_change()
    eventually(lambda: set(shop.client.tools()) == {"new", "old"}, "both tools", SOON_S)
    assert (shop.says("old"), shop.says("new")) == ("one", "n")


def test_a_tool_that_loses_its_schema_keeps_the_last_good_one(shop: Workshop) -> None:
    """The file loads, but one of its tools cannot be served."""
    mark = shop.server.log_mark()
    write(
        shop.folder / "old.py",
        "from typing import Annotated\n\nfrom app import Header, tool\n\n\n@tool\n"
        'def old(x: Annotated[float, Header("X")]) -> str:\n    """Answer."""\n    return "bad"\n',
    )
    shop.logged("old.py", after=mark)
    assert shop.says("old") == "one"


def test_a_renamed_file_keeps_its_tool_and_is_heard_by_nobody(shop: Workshop) -> None:
    (shop.folder / "old.py").rename(shop.folder / "other.py")
    write_tool(shop.folder, "old", "three", file="other.py")
    eventually(lambda: shop.says("old") == "three", "the tool from its new file", SOON_S)
    write_tool(shop.folder, "new", "n")
    shop.hears_one_change()


def test_a_renamed_tool_goes_and_comes(shop: Workshop) -> None:
    write_tool(shop.folder, "renamed", "r", file="old.py")
    shop.hears_one_change()
    assert set(shop.client.tools()) == {"renamed"}
    assert shop.client.call("old").outcome == (400, -32602)
    assert shop.says("renamed") == "r"


def test_a_removed_file_takes_its_tool_with_it(shop: Workshop) -> None:
    """EX-06: later calls are unknown."""
    write_tool(shop.folder, "new", "n")
    shop.hears_one_change()
    (shop.folder / "old.py").unlink()
    shop.hears_one_change()
    assert set(shop.client.tools()) == {"new"}
    assert shop.client.call("old").outcome == (400, -32602)


def test_a_removed_folder_takes_its_tools_with_it(shop: Workshop) -> None:
    file = write_tool(shop.folder / "sub", "inner", "i")
    shop.hears_change()
    file.unlink()
    file.parent.rmdir()
    eventually(lambda: set(shop.client.tools()) == {"old"}, "only the other tool", SOON_S)


def test_a_file_that_is_gone_and_back_is_served(shop: Workshop) -> None:
    """Some editors delete and create."""
    (shop.folder / "old.py").unlink()
    shop.hears_change()
    write_tool(shop.folder, "old", "back")
    eventually(lambda: shop.client.call("old").status == 200, "the tool", SOON_S)
    assert shop.says("old") == "back"


HELPED = (
    "from app import tool\n\nfrom ._words import WORD\n\n\n@tool\n"
    'def helped() -> str:\n    """Answer."""\n    return WORD\n'
)
HELPED_BY_PACKAGE = HELPED.replace("._words", "._lib.deep").replace("def helped", "def packaged")


def test_a_changed_helper_reloads_those_who_use_it(watching: ServerProcess) -> None:
    restore(watching)
    tmp_path = watching.tools
    write(tmp_path / "_words.py", 'WORD = "one"\n')
    write(tmp_path / "_lib" / "__init__.py", "")
    write(tmp_path / "_lib" / "deep.py", 'WORD = "deep one"\n')
    write(tmp_path / "helped.py", HELPED)
    write(tmp_path / "packaged.py", HELPED_BY_PACKAGE)
    every = {"old", "helped", "packaged"}
    eventually(lambda: set(watching.client.tools()) == every, "the tools", SOON_S)
    with workshop(watching) as shop:
        write(tmp_path / "_words.py", 'WORD = "two"\n')
        eventually(lambda: shop.says("helped") == "two", "the helper's new word", SOON_S)
        write(tmp_path / "_lib" / "deep.py", 'WORD = "deep two"\n')
        eventually(lambda: shop.says("packaged") == "deep two", "the package's new word", SOON_S)
        write(tmp_path / "_words.py", "WORD = (\n")
        shop.logged("_words.py")
        assert shop.says("helped") == "two"
        write(tmp_path / "_words.py", 'WORD = "three"\n')
        eventually(lambda: shop.says("helped") == "three", "the mended helper", SOON_S)
        write_tool(tmp_path, "new")  # nothing until here was visible in the list
        shop.hears_one_change()


def test_helpers_have_no_tools_of_their_own(server_factory: ServerFactory, tmp_path: Path) -> None:
    write_tool(tmp_path, "hidden", file="_helper.py")
    write(
        tmp_path / "user.py",
        "from ._helper import hidden\nfrom app import tool\n\n\n@tool\n"
        'def user() -> str:\n    """Answer."""\n    return hidden()\n',
    )
    server = server_factory(tmp_path, {"tools": {"reload": False}})
    assert set(server.client.tools()) == {"user"}
    assert server.client.call("user").text == "x"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write(folder / "notes.txt", "x"),
        lambda folder: write(folder / ".old.py.swp", "x"),
        lambda folder: write(folder / "__pycache__" / "old.cpython-311.pyc", "x"),
        lambda folder: write_tool(folder, "old", "one"),
        lambda folder: (folder / "old.py").touch(),
        lambda folder: write(
            folder / "old.py", f"# A comment.\n{(folder / 'old.py').read_text('utf-8')}"
        ),
    ],
    ids=["a text", "an editor's file", "bytecode", "the same again", "touched", "a comment"],
)
def test_what_nobody_can_see_nobody_hears(shop: Workshop, change: Callable[[Path], object]) -> None:
    change(shop.folder)
    write_tool(shop.folder, "new", "n")
    shop.hears_one_change()


def test_code_that_changes_behind_the_same_description_is_heard_by_nobody(shop: Workshop) -> None:
    write_tool(shop.folder, "old", "two")
    eventually(lambda: shop.says("old") == "two", "the new code", SOON_S)
    write_tool(shop.folder, "new", "n")
    shop.hears_one_change()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_running_call_finishes_on_the_code_it_began_with(
    shop: Workshop, tmp_path_factory: pytest.TempPathFactory, asynchronous: bool
) -> None:
    """EX-06: even when its file, its helper and its schema change meanwhile."""
    notes, release = (tmp_path_factory.mktemp("run") / name for name in ("notes", "release"))

    def source(word: str, parameter: str) -> str:
        kind, pause = ("async ", "await asyncio.") if asynchronous else ("", "time.")
        return (
            "import asyncio\nimport time\nfrom pathlib import Path\n\nfrom app import tool\n\n"
            f"from ._word import WORD\n\nOWN = {word!r}\n\n\n@tool(timeout_s=60)\n"
            f'{kind}def slow({parameter}: str) -> str:\n    """Answer {word}."""\n'
            f"    Path({str(notes)!r}).write_text('started\\n')\n"
            f"    while not Path({str(release)!r}).exists():\n        {pause}sleep(0.01)\n"
            "    return f'{WORD} {OWN}'\n"
        )

    write(shop.folder / "_word.py", 'WORD = "old helper"\n')
    write(shop.folder / "slow.py", source("old", "a"))
    shop.hears_one_change()
    params = {"name": "slow", "arguments": {"a": "x"}}
    with shop.client.connect() as connection:
        connection.send(shop.client.request("tools/call", params).encode())
        eventually_lines(notes, "started")
        write(shop.folder / "_word.py", 'WORD = "new helper"\n')
        write(shop.folder / "slow.py", source("new", "b"))
        shop.hears_change()
        eventually(
            lambda: "new" in shop.client.tools()["slow"]["description"], "the new code", SOON_S
        )
        assert shop.client.call("slow", {"a": "x"}).is_error  # the new schema
        release.touch()
        message = connection.read_response().json()
    assert message["result"]["content"][0]["text"] == "old helper old"
    assert shop.client.call("slow", {"b": "x"}).text == "new helper new"


LIFESPAN = '''
from contextlib import asynccontextmanager
from pathlib import Path

from app import Context, tool

NOTES = Path({notes!r})


def note(line):
    with NOTES.open("a") as file:
        file.write(line + "\\n")


@asynccontextmanager
async def lifespan():
    note("open {version}")
    try:
        yield "{version}"
    finally:
        note("close {version}")


@tool(timeout_s=60)
async def held(ctx: Context, release: str) -> str:
    """Answer {version}."""
    import asyncio

    note("call {version}")
    while not Path(release).exists():
        await asyncio.sleep(0.01)
    note("done {version}")
    return ctx.lifespan
'''


def test_a_lifespan_closes_after_the_last_call_of_its_snapshot(
    server_factory: ServerFactory, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("run")
    notes, release = run / "notes", run / "release"
    write(tmp_path / "held.py", LIFESPAN.format(notes=str(notes), version="one"))
    server = server_factory(tmp_path, SETTINGS)
    params = {"name": "held", "arguments": {"release": str(release)}}
    with workshop(server) as shop, server.client.connect() as connection:
        connection.send(server.client.request("tools/call", params).encode())
        eventually_lines(notes, "call one")
        write(tmp_path / "held.py", LIFESPAN.format(notes=str(notes), version="two"))
        shop.hears_one_change()
        assert notes.read_text().splitlines() == ["open one", "call one", "open two"]
        release.touch()
        assert connection.read_response().json()["result"]["content"][0]["text"] == "one"
        assert eventually_lines(notes, "close one")[-2:] == ["done one", "close one"]
        assert server.client.call("held", {"release": str(release)}).text == "two"
    server.stop()
    assert notes.read_text().splitlines()[-1] == "close two"


def test_a_lifespan_that_fails_keeps_the_last_good_tools(
    shop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("run")
    (run / "release").touch()
    text = LIFESPAN.format(notes=str(run / "notes"), version="one")
    write(shop.folder / "held.py", text)
    shop.hears_one_change()
    mark = shop.server.log_mark()
    write(shop.folder / "held.py", text.replace('note("open one")', 'raise OSError("no network")'))
    shop.logged("held.py", "no network", after=mark)
    assert shop.client.call("held", {"release": str(run / "release")}).text == "one"


# -- config.toml ---------------------------------------------------------------------


def test_an_override_in_the_configuration_takes_effect(shop: Workshop) -> None:
    shop.server.write_config(SETTINGS | {"overrides": {"old": {"description": "Say more."}}})
    shop.hears_one_change()
    assert shop.client.tools()["old"]["description"] == "Say more."
    shop.server.write_config(SETTINGS | {"overrides": {"old": {"enabled": False}}})
    shop.hears_one_change()
    assert shop.client.tools() == {}
    assert shop.client.call("old").outcome == (400, -32602)
    shop.server.write_config(SETTINGS)
    shop.hears_one_change()
    assert shop.client.tools()["old"]["description"] == "Answer."


def test_settings_of_a_tool_change_without_a_notification(shop: Workshop) -> None:
    def settings(word: str) -> dict[str, Any]:
        return SETTINGS | {"overrides": {"told": {"settings": {"word": word}}}}

    write(
        shop.folder / "told.py",
        "from app import Context, tool\n\n\n@tool\n"
        'def told(ctx: Context) -> str:\n    """Answer."""\n    return ctx.settings["word"]\n',
    )
    shop.hears_one_change()
    shop.server.write_config(settings("one"))
    eventually(lambda: shop.says("told") == "one", "the setting", SOON_S)
    shop.server.write_config(settings("two"))
    eventually(lambda: shop.says("told") == "two", "the new setting", SOON_S)
    write_tool(shop.folder, "new")
    shop.hears_one_change()


@pytest.mark.parametrize(
    "text",
    ["[overrides.old\n", "[overrides.old]\nenabld = true\n", "[tools]\npage_size = 0\n"],
    ids=["not TOML", "an unknown key", "a bad value"],
)
def test_a_configuration_that_does_not_load_changes_nothing(shop: Workshop, text: str) -> None:
    mark = shop.server.log_mark()
    shop.server.write_config(text)
    shop.logged("config.toml", after=mark)
    assert shop.says("old") == "one"
    shop.server.write_config(SETTINGS | {"overrides": {"old": {"title": "Old"}}})
    shop.hears_one_change()
    assert shop.client.tools()["old"]["title"] == "Old"


# -- together -------------------------------------------------------------------------


def test_a_change_made_within_a_call_is_heard_once(shop: Workshop) -> None:
    """LC-02."""
    write(
        shop.folder / "grow.py",
        "from pathlib import Path\n\nfrom app import tool\n\n\n@tool\n"
        'def grow() -> str:\n    """Add a tool."""\n'
        "    here = Path(__file__).parent\n"
        "    text = (here / 'grow.py').read_text().replace('def grow', 'def grown')\n"
        "    (here / 'grown.draft').write_text(text)\n"
        "    (here / 'grown.draft').rename(here / 'grown.py')\n"
        '    return "x"\n',
    )
    shop.hears_one_change()
    assert shop.says("grow") == "x"
    shop.hears_one_change()
    assert set(shop.client.tools()) == {"old", "grow", "grown"}


def test_no_call_sees_half_a_change(shop: Workshop) -> None:
    """Two files that belong together change while clients ask without pause."""
    for name in ("left", "right"):
        write_tool(shop.folder, name, "0")
    eventually(lambda: {"left", "right"} <= set(shop.client.tools()), "both tools", SOON_S)
    with shop.client.connect() as connection:
        for version in range(1, 4):
            for name in ("left", "right"):
                write_tool(shop.folder, name, str(version), description=f"Version {version}.")

            def everywhere(version: int = version) -> bool:
                tools = shop.client.tools(connection=connection)
                # Whatever is listed can be called, at every moment.
                for name in ("old", "left", "right"):
                    assert name in tools
                    assert shop.client.call(name, connection=connection).status == 200
                return all(
                    tools[name]["description"] == f"Version {version}."
                    for name in ("left", "right")
                )

            eventually(everywhere, f"version {version}", SOON_S)
            assert shop.says("left") == shop.says("right") == str(version)


def test_the_separator_between_folder_and_name_is_a_setting(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    write_tool(tmp_path / "finance" / "fx", "convert")
    server = server_factory(tmp_path, {"tools": {"separator": "_", "reload": False}})
    assert set(server.client.tools()) == {"finance_fx_convert"}


def test_a_name_that_is_taken_is_refused_until_it_is_free(shop: Workshop) -> None:
    """Neither of two equal names wins silently; the one that was there stays."""
    mark = shop.server.log_mark()
    write_tool(shop.folder, "old", "thief", file="thief.py")
    shop.logged("thief.py", "old", after=mark)
    (shop.folder / "thief.py").unlink()
    write_tool(shop.folder, "new")
    eventually(lambda: "new" in shop.client.tools(), "the new tool", SOON_S)
    assert shop.says("old") == "one"


def test_many_files_at_once_are_heard_as_few(shop: Workshop) -> None:
    for number in range(40):
        write_tool(shop.folder, f"many_{number}")
    heard = 0
    while len(shop.client.tools()) < 41:
        shop.hears_change()
        heard += 1
    assert heard <= 10
