"""Runs in a process of its own: starts JAX and lets each device compute something. Writes what it found as one line of JSON."""

import json
import sys
import time
from typing import Any

MARK = "headrace-probe "
"""Begins the line; what drivers write to the same place is passed over."""


def main() -> None:
    """Look, and write the line."""
    sys.stdout.write(f"\n{MARK}{json.dumps(look())}\n")


def look() -> dict[str, Any]:
    """Backend, devices, and how long a tiny program takes."""
    began = time.perf_counter()
    import jax
    import jax.numpy as jnp

    imported = time.perf_counter()
    devices = jax.local_devices()
    ready = time.perf_counter()
    program = jax.jit(lambda x: jnp.tanh(x @ x).sum())
    first = [_timed(program, jax.device_put(jnp.ones((256, 256)), device)) for device in devices]
    again = [min(_timed(program, jax.device_put(jnp.ones((256, 256)), device)) for _ in range(5)) for device in devices]
    return {
        "backend": jax.default_backend(),
        "processes": jax.process_count(),
        "devices": [
            {"kind": device.device_kind, "memory_bytes": (device.memory_stats() or {}).get("bytes_limit")} for device in devices
        ],
        "import_s": imported - began,
        "start_s": ready - imported,
        "compile_s": first[0],
        "run_s": max(again),
    }


def _timed(program: Any, x: Any) -> float:
    began = time.perf_counter()
    program(x).block_until_ready()
    return time.perf_counter() - began
