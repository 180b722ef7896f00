"""What the tests of saving share."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

_MEMORY = "/dev/shm"


@pytest.fixture
def ram(tmp_path: Path) -> Generator[Path]:
    """A folder in memory, where the machine has one: in virtual time a disk decides nothing but how long a test takes."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else tmp_path) as folder:
        yield Path(folder)
