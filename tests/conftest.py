"""What holds for every test: JAX on two virtual CPU devices, strict in dtype and rank, and no network.

Set here because it must be in force before the first import of jax, and because subprocesses inherit it.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUM_CPU_DEVICES"] = "2"
# XLA's CPU threads starve, and a sharded loop hangs, unless there are at least twice as many as virtual devices.
os.environ["NPROC"] = "16"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
