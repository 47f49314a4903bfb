"""What several tests of the documentation start from."""

from pathlib import Path

import pytest

from tests.docs.session import make_clone


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a session needs of a clone of the repository."""
    return make_clone(tmp_path)
