"""What processes a server has."""

from pathlib import Path

from tests.support.server import ServerProcess


def _parents() -> dict[int, int]:
    """Every process that has not ended, and its parent."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text("utf-8", "replace")
            except OSError:
                continue
            state, parent = status.rpartition(")")[2].split()[:2]
            if state not in "ZX":
                found[int(folder.name)] = int(parent)
    return found


def descendants(pid: int) -> set[int]:
    """Processes below one."""
    parents = _parents()
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more


def is_alive(pid: int) -> bool:
    """Whether a process has not ended."""
    return pid in _parents()


def workers(server: ServerProcess) -> set[int]:
    """The worker processes of a server, and whatever they have started."""
    (template,) = {pid for pid, parent in _parents().items() if parent == server.pid}
    return descendants(template)
