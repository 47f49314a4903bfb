"""Which hooks stand around the calls of a tool: ``[[hooks]]``, resolved once for a snapshot."""

import difflib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.policy.globs import compile_globs
from app.registry.guards import BUILT_IN, BadOptions
from app.registry.loader import LoadedFile
from app.settings import HookSettings
from app.toolkit import HookSpec


class Hook(NamedTuple):
    """One function that runs beside the calls of a tool.

    Attributes:
        run: ``before_call`` or ``after_call``, as declared.
        options: What the settings tell it.
        file: Where it is declared; None: it is built in.
    """

    name: str
    run: Callable[..., Any]
    is_async: bool
    options: Mapping[str, Any]
    file: LoadedFile | None = None

    @property
    def is_built_in(self) -> bool:
        return self.file is None


class Hooks(NamedTuple):
    """The hooks of one tool, in the order in which they run.

    Attributes:
        files: Where they are declared, each once.
    """

    before: tuple[Hook, ...] = ()
    after: tuple[Hook, ...] = ()
    files: tuple[LoadedFile, ...] = ()


NO_HOOKS: Final = Hooks()


class UnknownHook(ValueError):
    """A hook that the settings name cannot be used; the text says why."""


class HookTable:
    """The hooks of one version of the settings and of the files.

    Args:
        settings: In their order.
        declared: Hooks of the files, each with its name as served; a name may come twice.
    """

    def __init__(
        self,
        settings: Sequence[HookSettings],
        declared: Iterable[tuple[str, HookSpec[..., Any], LoadedFile]],
    ) -> None:
        declared = list(declared)
        self._times = Counter(name for name, _, _ in declared)
        self._declared = {name: (spec, file) for name, spec, file in declared}
        self._settings = settings
        self._globs = [compile_globs(each.tools) for each in settings]
        self._made: dict[int, Hooks | UnknownHook] = {}

    def of(self, tool: str) -> Hooks:
        """The hooks of a tool.

        Raises:
            UnknownHook: One of them cannot be used. Without it the tool must not be served: what
                is misspelt would otherwise guard nothing.
        """
        before: list[Hook] = []
        after: list[Hook] = []
        for number, glob in enumerate(self._globs):
            if glob.match(tool):
                hooks = self._hooks(number)
                before += hooks.before
                after += hooks.after
        if not before and not after:
            return NO_HOOKS
        files = dict.fromkeys(hook.file for hook in (*before, *after) if hook.file is not None)
        return Hooks(tuple(before), tuple(after), tuple(files))

    def unused(self, tools: Iterable[str]) -> list[str]:
        """What is written and reaches nothing."""
        names = list(tools)
        return [
            f"hooks: entry {number} ({self._settings[number - 1].use}) names no tool"
            for number, glob in enumerate(self._globs, 1)
            if not any(map(glob.match, names))
        ]

    def _hooks(self, number: int) -> Hooks:
        if number not in self._made:
            try:
                self._made[number] = self._make(self._settings[number])
            except UnknownHook as error:
                self._made[number] = UnknownHook(f"hooks: entry {number + 1}: {error}")
        made = self._made[number]
        if isinstance(made, UnknownHook):
            raise made
        return made

    def _make(self, entry: HookSettings) -> Hooks:
        name, options = entry.use, entry.options
        if name in BUILT_IN:
            if name in self._declared:
                raise UnknownHook(f"{name!r} is built in, and a file declares it too; rename yours")
            try:
                before, after = BUILT_IN[name](options)
            except BadOptions as error:
                raise UnknownHook(f"{name}: {error}") from None
            return Hooks(
                tuple(_hook(name, each, options) for each in before),
                tuple(_hook(name, each, options) for each in after),
            )
        if self._times[name] > 1:
            raise UnknownHook(f"{name!r} is declared {self._times[name]} times")
        if name not in self._declared:
            known = [*BUILT_IN, *sorted(self._declared)]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise UnknownHook(f"there is no hook {name!r}; {hint}")
        spec, file = self._declared[name]
        hook = _hook(name, spec.function, options, file)
        return Hooks(before=(hook,)) if spec.when == "before" else Hooks(after=(hook,))


def _hook(
    name: str,
    run: Callable[..., Any],
    options: Mapping[str, Any],
    file: LoadedFile | None = None,
) -> Hook:
    return Hook(name, run, inspect.iscoroutinefunction(run), options, file)
