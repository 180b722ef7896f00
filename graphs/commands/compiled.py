"""Compiled programs on disk: a program that was compiled once on this machine starts in seconds the next time."""

import os
from collections.abc import Mapping
from pathlib import Path


def compiled_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where they are kept: ``$XDG_CACHE_HOME/headrace/compiled``, or where JAX was told to; ``None`` for nowhere.

    Args:
        environment: variables.
    """
    if environment.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower() in ("0", "false", "off", "no", "n", "f"):
        return None
    told = environment.get("JAX_COMPILATION_CACHE_DIR")
    if told is not None or "JAX_ENABLE_COMPILATION_CACHE" in environment:
        return Path(told) if told else None
    home = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "headrace" / "compiled"


def keep_compiled() -> None:
    """Let JAX keep what takes over a tenth of a second to compile, in ``compiled_folder``.

    Where JAX was told about its cache by the environment, nothing is changed.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
        return
    import jax  # takes a while, and who only asks for the folder may have none

    jax.config.update("jax_compilation_cache_dir", str(compiled_folder()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
