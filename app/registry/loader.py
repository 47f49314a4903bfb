"""Loads the modules of the tools folder, version by version.

Every build loads what changed under a package name of its own and takes over the modules that
did not. So a call that runs goes on with the code it began with, a build that fails leaves
nothing behind, and an edit of a helper reloads exactly those files that use it.
"""

import ast
import asyncio
import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self

from app.registry.problems import Problem
from app.toolkit import DECLARED, DECLARED_HOOKS, HookSpec, ToolSpec

MAX_SOURCE_BYTES: Final = 4 * 1024 * 1024
PARSE_TRIES: Final = 20
_parsing: Final = threading.Lock()
_builds: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file as it was read for one build.

    Attributes:
        path: Relative to the tools folder, with ``/``.
        imports: Paths of the files below the folder that it imports.
    """

    path: str
    text: bytes
    digest: str
    imports: frozenset[str]

    @property
    def is_tool_file(self) -> bool:
        """Whether tools are looked for in it: no part of its path begins with ``_``."""
        return not any(part.startswith("_") for part in PurePosixPath(self.path).parts)


@dataclass(eq=False, slots=True)
class LoadedFile:
    """A version of a file whose module was executed.

    Attributes:
        key: Digest over the file and all that it imports; equal keys mean equal code.
        specs: Its tools with the lines of their functions.
        hooks: Its hooks.
        sources: What it was loaded among: enough to load the same version again elsewhere.
        compiled: Tools by a key of everything that they were compiled from (see assembly).
        lifespan_value: What its ``lifespan()`` yielded.
        calls: Calls that run its code right now.
        idle: Set when the last call of a replaced version has ended; None while it is current.
    """

    path: str
    key: str
    module: types.ModuleType
    specs: Sequence[tuple[ToolSpec[..., Any], int]]
    sources: Mapping[str, Source]
    hooks: Sequence[HookSpec[..., Any]] = ()
    compiled: dict[Any, Any] = field(default_factory=dict)
    lifespan_value: Any = None
    calls: int = 0
    idle: asyncio.Event | None = None

    def begin(self) -> None:
        """A call runs its code: it is not closed under it."""
        self.calls += 1

    def end(self) -> None:
        """The counterpart of ``begin``."""
        self.calls -= 1
        if self.idle is not None and self.calls == 0:
            self.idle.set()


@dataclass(frozen=True, slots=True)
class Build:
    """What loading the folder gave.

    Attributes:
        files: The version of each file that can be served, by path; helpers included.
    """

    files: Mapping[str, LoadedFile]
    problems: Sequence[Problem]


def load_folder(folder: Path, previous: Mapping[str, LoadedFile]) -> Build:
    """Load every Python file below a folder, taking over what did not change.

    One bad file never takes the rest: it is reported, and its previous version stays.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"the tools folder {folder} does not exist")
    problems: list[Problem] = []
    sources = {source.path: source for source in _read(folder, problems)}
    unreadable = {problem.path for problem in problems}
    keys = {path: _key(path, sources) for path in sources}
    package = _Package(folder, sources)
    files: dict[str, LoadedFile] = {}
    for path in sorted(sources):
        old = previous.get(path)
        if old is not None and old.key == keys[path]:
            files[path] = old
            package.adopt(path, old.module)
    with package:
        for path in sorted(sources.keys() - files.keys()):
            loaded = _load(path, keys[path], package, problems)
            if loaded is not None:
                files[path] = loaded
            elif path in previous:
                files[path] = previous[path]
    files.update({path: previous[path] for path in unreadable & previous.keys()})
    return Build(files, problems)


def load_again(
    folder: Path,
    texts: Mapping[str, bytes],
    paths: Iterable[str],
    announce: Callable[[str], None],
) -> Build:
    """Load files of a build that another process has read, whatever the folder holds by now.

    Args:
        texts: All files of the build by path.
        paths: Those to load.
        announce: Told which file comes next.
    """
    sources = {path: Source(path, text, "", frozenset()) for path, text in texts.items()}
    problems: list[Problem] = []
    files = {}
    with _Package(folder, sources) as package:
        for path in paths:
            announce(path)
            loaded = _load(path, "", package, problems)
            if loaded is not None:
                files[path] = loaded
    return Build(files, problems)


def _load(path: str, key: str, package: "_Package", problems: list[Problem]) -> LoadedFile | None:
    source = package.sources[path]
    try:
        module = importlib.import_module(package.module_name(path))
        specs = _specs(module) if source.is_tool_file else ()
        hooks = tuple(vars(module).get(DECLARED_HOOKS, ())) if source.is_tool_file else ()
        if specs:
            _check_lifespan(module)
    except BaseException as error:  # noqa: BLE001  # a file may raise SystemExit too
        problems.append(_load_problem(package.folder, source, error))
        return None
    return LoadedFile(path, key, module, specs, package.sources, hooks)


def _read(folder: Path, problems: list[Problem]) -> Iterator[Source]:
    for file in sorted(folder.rglob("*.py")):
        relative = file.relative_to(folder)
        if any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
            continue
        path = relative.as_posix()
        try:
            if not file.is_file():  # opening a pipe would wait for ever
                problems.append(Problem(path, None, "error", "is not a regular file"))
                continue
            with file.open("rb") as stream:
                text = stream.read(MAX_SOURCE_BYTES + 1)
        except OSError as error:
            problems.append(Problem(path, None, "error", f"cannot be read: {error.strerror}"))
            continue
        if len(text) > MAX_SOURCE_BYTES:
            problems.append(Problem(path, None, "error", f"larger than {MAX_SOURCE_BYTES} bytes"))
            continue
        yield Source(path, text, hashlib.sha256(text).hexdigest(), _imports(folder, path, text))


def _imports(folder: Path, path: str, text: bytes) -> frozenset[str]:
    """The files below the folder that a source imports relatively, inside functions too."""
    try:
        tree = _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()  # loading it will say what is wrong
    package = PurePosixPath(path).parent
    targets: set[PurePosixPath] = {package / "__init__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package
            for _ in range(node.level - 1):
                base = base.parent
            for part in (node.module or "").split("."):
                base = base / part if part else base
                targets |= {base, base / "__init__"}
            targets |= {base / alias.name for alias in node.names}
            targets |= {base / alias.name / "__init__" for alias in node.names}
    found = (f"{target}.py" for target in targets)
    return frozenset(name for name in found if name != path and (folder / name).is_file())


def _parsed(text: bytes) -> ast.Module:
    """The syntax tree.

    CPython 3.11 counts how deep it is in trees for all threads together, and gives up with a
    SystemError when another one makes a tree meanwhile (python/cpython#106905).
    """
    for _ in range(PARSE_TRIES):
        # One after another here; code that is not ours may still parse beside.
        with contextlib.suppress(SystemError), _parsing:
            return ast.parse(text)
    return ast.parse(text)


def _key(path: str, sources: Mapping[str, Source]) -> str:
    closure: set[str] = set()
    stack = [path]
    while stack:
        name = stack.pop()
        if name not in closure and name in sources:
            closure.add(name)
            stack.extend(sources[name].imports)
    digest = hashlib.sha256()
    for name in sorted(closure):
        digest.update(f"{name}\0{sources[name].digest}\n".encode())
    return digest.hexdigest()


class _Package(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The import machinery of one build: a package that exists only for it."""

    def __init__(self, folder: Path, sources: Mapping[str, Source]) -> None:
        self.folder = folder
        self.sources = sources
        self._root = f"mcp_tools_{next(_builds)}"

    def module_name(self, path: str) -> str:
        parts = PurePosixPath(path).with_suffix("").parts
        return ".".join((self._root, *(parts[:-1] if parts[-1] == "__init__" else parts)))

    def adopt(self, path: str, module: types.ModuleType) -> None:
        """Let this build import a module of an earlier one under the name it has here."""
        sys.modules[self.module_name(path)] = module

    def __enter__(self) -> Self:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        # The modules stay in sys.modules: pydantic, dataclasses and late imports inside
        # functions look them up there by name.
        sys.meta_path.remove(self)

    def find_spec(
        self,
        name: str,
        path: object = None,  # noqa: ARG002  # importlib's signature
        target: object = None,  # noqa: ARG002  # likewise
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, rest = name.partition(".")
        if root != self._root:
            return None
        base = rest.replace(".", "/")
        for file, is_package in (
            (f"{base}/__init__.py" if base else "__init__.py", True),
            (f"{base}.py", False),
        ):
            if file in self.sources:
                spec = importlib.machinery.ModuleSpec(
                    name, self, origin=str(self.folder / file), is_package=is_package
                )
                spec.has_location = True
                return spec
        if not base or any(other.startswith(f"{base}/") for other in self.sources):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        if spec.origin is None:  # a plain folder
            return
        path = Path(spec.origin).relative_to(self.folder).as_posix()
        code = compile(self.sources[path].text, spec.origin, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  # executing the operator's files is the job


def forget_modules(keep: Iterable[LoadedFile]) -> None:
    """Drop the names of builds that no file in use comes from."""
    roots = {file.module.__name__.partition(".")[0] for file in keep}
    for name in list(sys.modules):
        root = name.partition(".")[0]
        if root.startswith("mcp_tools_") and root not in roots:
            del sys.modules[name]


def _specs(module: types.ModuleType) -> list[tuple[ToolSpec[..., Any], int]]:
    """The tools that a module declares itself; imported ones belong to their own file."""
    names = vars(module)
    own = [
        value
        for value in names.values()
        if isinstance(value, ToolSpec) and value.function.__module__ == module.__name__
    ]
    # A tool that was declared through a decorator of a helper is in the names alone.
    specs = {id(spec): spec for spec in [*names.get(DECLARED, ()), *own]}
    return [(spec, _line_of(spec.function)) for spec in specs.values()]


def _check_lifespan(module: types.ModuleType) -> None:
    lifespan = vars(module).get("lifespan")
    if inspect.isgeneratorfunction(lifespan) or inspect.isasyncgenfunction(lifespan):
        raise TypeError(
            "lifespan() must be decorated with @contextlib.asynccontextmanager and be async"
        )


def _line_of(function: Any) -> int:
    code = getattr(function, "__code__", None)
    return code.co_firstlineno if code is not None else 1


def _load_problem(folder: Path, source: Source, error: BaseException) -> Problem:
    line: int | None = None
    where = ""
    if isinstance(error, SyntaxError) and error.filename:
        line, place = error.lineno, Path(error.filename)
        message = f"syntax error: {error.msg}"
        if place.name != Path(source.path).name:
            where = f" (in {place.name})"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(folder / source.path):
                line = frame.lineno
        message = f"{type(error).__name__}: {error}".rstrip(": ")
        if isinstance(error, ModuleNotFoundError) and _is_helper(folder, source, error.name):
            message += (
                f"; to import a file beside this one write `from .{error.name} import ...`, with "
                "the dot"
            )
    return Problem(source.path, line, "error", message + where)


def _is_helper(folder: Path, source: Source, name: str | None) -> bool:
    if not name:
        return False
    first = name.partition(".")[0]
    beside = (folder / source.path).parent
    return (beside / f"{first}.py").is_file() or (beside / first).is_dir()
