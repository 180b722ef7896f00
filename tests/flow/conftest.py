"""What stands in ``importable`` is on the path of the tests, and so of the processes they start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("importable")))
