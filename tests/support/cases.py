"""Tables of cases whose first column is the name of the rule they come from."""

from typing import Any

import pytest


def rows(names: str, *table: tuple[Any, ...]) -> pytest.MarkDecorator:
    """Run a test once per row. The first value of a row is its id, the others are `names`."""
    return pytest.mark.parametrize(names, [pytest.param(*row[1:], id=row[0]) for row in table])
