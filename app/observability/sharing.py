"""Lets each of several processes tell the metrics of all.

Each writes its own into a folder that is theirs alone, and who is asked reads those of the others.
What a process has counted stays when it ends, or the sums would fall, which Prometheus takes for a
new beginning; what was the case in it does not.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from app.observability.counting import Counter, Gauge, Histogram, Labels
from app.observability.metrics import FAMILIES

_RETIRED: Final = "retired"
"""Name of what the processes have counted that are gone."""


class Snapshot(NamedTuple):
    """The metrics of one process at one moment, or of several.

    Attributes:
        values: By family and by the labels; see ``app.observability.counting``.
        bounds: Of histograms.
    """

    values: dict[str, dict[Labels, Any]]
    bounds: dict[str, tuple[float, ...]]

    def encoded(self) -> bytes:
        """As bytes for another process of the same version."""
        values = {name: list(series.items()) for name, series in self.values.items()}
        return orjson.dumps([values, self.bounds])


def decoded(data: bytes) -> Snapshot:
    """The counterpart of ``Snapshot.encoded``.

    Raises:
        ValueError: It is none.
    """
    values, bounds = orjson.loads(data)
    return Snapshot(
        {
            name: {tuple(labels): value for labels, value in series}
            for name, series in values.items()
        },
        {name: tuple(each) for name, each in bounds.items()},
    )


def take() -> Snapshot:
    """The metrics of this process now. In the event loop, after ``metrics.read``."""
    bounds = {name: each.bounds for name, each in FAMILIES.items() if isinstance(each, Histogram)}
    return Snapshot({name: family.copy() for name, family in FAMILIES.items()}, bounds)


def added(one: Snapshot, other: Snapshot, *, is_gone: bool = False) -> Snapshot:
    """Both together.

    Args:
        is_gone: Whether the other's process has ended: then only what it has counted is added.
    """
    values = {name: dict(series) for name, series in one.values.items()}
    for name, series in other.values.items():
        family = FAMILIES.get(name)
        if family is None or (is_gone and isinstance(family, Gauge)):
            continue
        if one.bounds.get(name) != other.bounds.get(name) and name in one.bounds:
            continue  # it had other settings, and its buckets say nothing of these
        into = values.setdefault(name, {})
        for labels, value in series.items():
            before = into.get(labels)
            into[labels] = value if before is None else _joined(family, before, value)
    return Snapshot(values, {**other.bounds, **one.bounds})


def _joined(family: Counter | Gauge | Histogram | Any, one: Any, other: Any) -> Any:
    if isinstance(family, Histogram):
        return [a + b for a, b in zip(one, other, strict=True)]
    if isinstance(family, Gauge) and family.across != "sum":
        return max(one, other) if family.across == "max" else min(one, other)
    return one + other


class Folder:
    """Where the processes of one server meet. It belongs to them alone.

    That a process lives is told by a lock on a file of its own, which the system lets go of however
    the process ends.

    Args:
        name: Of this process among them.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._alive = os.open(path / f"{name}.alive", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._alive, fcntl.LOCK_EX)

    def close(self) -> None:
        """The process ends."""
        os.close(self._alive)

    def write(self, own: bytes) -> None:
        """Leave an encoded snapshot for the others.

        Raises:
            OSError: It cannot be written.
        """
        new = self._path / f"{self._name}.new"
        new.write_bytes(own)
        new.replace(self._path / f"{self._name}.json")

    def with_others(self, own: Snapshot) -> Snapshot:
        """A snapshot of this process together with what the others have left, living or gone.

        It is left for them too: who is asked next must not know less.

        Raises:
            OSError: The folder cannot be read or written.
        """
        with self._locked():
            self.write(own.encoded())
            gone = self._read(_RETIRED) or Snapshot({}, {})
            together, dead = own, []
            for file in sorted(self._path.glob("*.json")):
                if file.stem in (self._name, _RETIRED):
                    continue
                lives = self._lives(file.stem)  # before: its last word comes before its end
                found = self._read(file.stem)
                if lives:
                    together = together if found is None else added(together, found)
                else:
                    dead.append(file.stem)
                    gone = gone if found is None else added(gone, found, is_gone=True)
            if dead:
                self._retire(gone, dead)
            return added(together, gone, is_gone=True)

    def _retire(self, gone: Snapshot, dead: list[str]) -> None:
        new = self._path / f"{_RETIRED}.new"
        new.write_bytes(gone.encoded())
        new.replace(self._path / f"{_RETIRED}.json")
        for name in dead:
            for ending in ("json", "alive", "new"):
                (self._path / f"{name}.{ending}").unlink(missing_ok=True)

    def _read(self, name: str) -> Snapshot | None:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            return decoded((self._path / f"{name}.json").read_bytes())
        return None

    def _lives(self, name: str) -> bool:
        try:
            file = os.open(self._path / f"{name}.alive", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else puts away what a process has left that is gone."""
        lock = os.open(self._path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
