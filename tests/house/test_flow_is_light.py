"""The engine loads without the libraries it must not know."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["flow", "flow.trace", "flow.testing"])
def test_flow_loads_without_jax_numpy_or_the_stages(module):
    code = f"""
import sys, {module}
heavy = {{"jax", "jaxlib", "numpy", "flax", "transformers", "pydantic", "stages", "graphs", "hypothesis"}}
print(sorted(heavy & {{name.split(".")[0] for name in sys.modules}}))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr, result.returncode) == ("[]\n", "", 0)
