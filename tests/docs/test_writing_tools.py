"""`docs/writing-tools.md`: its examples load, and give what it says that they give."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from app import __all__ as facade
from app.configuration import load_settings
from app.methods.discover import server_messages
from app.registry.assembly import Assembly
from app.registry.once import load_once
from tests.docs.commands import outputs
from tests.docs.markdown import DOCS, Block, blocks, squeezed
from tests.support.toolfiles import write

PAGE = DOCS / "writing-tools.md"
_HEADER = re.compile(r"# (tools/[\w/.]+\.py)(: refused)?")


def _file_of(block: Block) -> tuple[str, bool]:
    """The path that the first line of an example names, and whether it is to be refused."""
    found = _HEADER.fullmatch(block.text.partition("\n")[0])
    assert found, f"{PAGE.name}:{block.line}: the first line must name the file"
    return found[1].removeprefix("tools/"), found[2] is not None


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every example that is to load, and a configuration for it."""
    folder = tmp_path_factory.mktemp("examples")
    for block in blocks(PAGE, "python"):
        path, refused = _file_of(block)
        if not refused:
            write(folder / "tools" / path, block.text)
    (folder / "config.toml").write_text('[server]\ntitle = "Example tools"\n', "utf-8")
    return folder


def _load(tools: Path) -> Assembly:
    settings = load_settings(environ={}, flags={"tools": {"directory": str(tools)}})
    return load_once(settings, server_messages(settings))


def test_every_example_loads(examples: Path) -> None:
    assembly = _load(examples / "tools")

    assert [str(each) for each in assembly.problems if each.severity == "error"] == []
    # Each file that is not a helper serves at least one tool.
    files = {path.relative_to(examples / "tools") for path in (examples / "tools").rglob("*.py")}
    serving = {Path(tool.source.path) for tool in assembly.catalog.tools.values()}
    assert {file for file in files if not file.name.startswith("_")} == serving


def test_every_tool_of_an_example_is_described(examples: Path) -> None:
    problems = _load(examples / "tools").problems

    assert [str(each) for each in problems if "no description" in each.message] == []


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(each, id=_file_of(each)[0])
        for each in blocks(PAGE, "python")
        if _file_of(each)[1]
    ],
)
def test_an_example_of_a_mistake_is_refused_with_the_text_that_follows(
    block: Block, tmp_path: Path
) -> None:
    path, _ = _file_of(block)
    write(tmp_path / path, block.text)
    said = next(each.text for each in blocks(PAGE, "text") if each.line > block.line)

    problems = _load(tmp_path).problems

    assert [squeezed(each.message) for each in problems if each.severity == "error"] == [
        squeezed(said)
    ]


def _calls() -> list[tuple[str, str]]:
    """The command lines of the page, each with the output that follows it."""
    found = []
    for block in blocks(PAGE, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


@pytest.fixture(scope="module")
def printed(examples: Path) -> dict[str, str]:
    """What each command line of the page prints."""
    commands = [command for command, _ in _calls()]
    arguments = []
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "mcp-tool-server", command
        arguments.append([*words, "--tools", str(examples / "tools")])
    return dict(zip(commands, outputs(arguments, examples), strict=True))


@pytest.mark.parametrize(("command", "output"), _calls())
def test_a_call_gives_what_the_page_shows(
    command: str, output: str, printed: dict[str, str]
) -> None:
    said = re.sub(r'"version": "[^"]*"', '"version": "0.1.0"', printed[command])

    assert said.strip() == output.strip()


def test_the_configuration_of_the_page_names_its_tools(examples: Path, tmp_path: Path) -> None:
    names = set(_load(examples / "tools").catalog.tools)
    for block in blocks(PAGE, "toml"):
        file = tmp_path / "config.toml"
        file.write_text(block.text, "utf-8")
        settings = load_settings(file, environ={})

        assert set(settings.overrides) <= names, f"{PAGE.name}:{block.line}"
        assert set(tomllib.loads(block.text)) == {"overrides"}


def test_the_pages_name_what_the_facade_offers() -> None:
    text = PAGE.read_text("utf-8") + (DOCS / "hooks.md").read_text("utf-8")

    assert [name for name in facade if f"`{name}`" not in text] == []
