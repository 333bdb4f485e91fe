from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.product import Product


@pytest.fixture
def product(tmp_path: Path, nothing_left_behind: None) -> Iterator[Product]:
    """The installed command, never idle unless the test says so."""
    made = Product(tmp_path)
    yield made
    made.end()


@pytest.fixture
def sleepy(tmp_path: Path, nothing_left_behind: None) -> Iterator[Product]:
    """The same with an idle period of half a second."""
    made = Product(tmp_path, idle="500ms")
    yield made
    made.end()
