"""Members of objects whose names are changed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import is_


def distinct(before: Iterable[str], names: Sequence[str], numbered: str) -> Iterator[str]:
    """Names of members, of which none is lost although they may have become alike.

    One that is as it was stays so; of the others, those that are like one before have a number.
    The time grows with the count of names, however many are alike.

    Args:
        before: What they were; the very same object means that a name has not changed.
        numbered: Format of a name with its number, from 2 on.
    """
    is_kept = list(map(is_, before, names))
    taken = set(compress(names, is_kept))
    numbers: dict[str, int] = {}
    for name, kept in zip(names, is_kept, strict=True):
        free = name
        if not kept:
            number = numbers.get(name, 1)
            while free in taken:
                number += 1
                free = numbered.format(name, number)
            numbers[name] = number
            taken.add(free)
        yield free
