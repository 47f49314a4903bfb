"""How time grows with what is looked at."""

import time
from collections.abc import Callable


def grows_linearly(work: Callable[[int], object], size: int) -> bool:
    """Whether twice as much takes about twice as long; four times would be quadratic."""
    for _ in range(5):  # a busy machine may disturb one
        once, twice = _best(work, size), _best(work, 2 * size)
        if twice <= 3 * once + 0.001:
            return True
    return False


def _best(work: Callable[[int], object], size: int) -> float:
    times = []
    for _ in range(3):
        started = time.thread_time()
        work(size)
        times.append(time.thread_time() - started)
    return min(times)
