"""The calculator learns while a server in another process samples for it: needs ``pip install 'headrace[serve]'``.

``headrace serve calculator`` begins with the same first weights as the program, which are a function of its seed, and gets
every version after that by a folder that both processes see. Its token is made here and given on by the environment, so that it
stands on no command line. Steps are few: what is shown is that the engine is elsewhere, not how well it learns.
"""

import argparse
import os
import re
import secrets
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import httpx2

from graphs.cli import main as headrace

SMALL = "--num-train-tasks 64 --warm-start.steps 30 --evaluate.num-tasks 32 --rl.groups-per-step 4 --rl.group-size 4"


def main(steps: int, folder: Path) -> None:
    os.environ["HEADRACE_TOKEN"] = secrets.token_urlsafe()
    weights = folder / "weights"
    weights.mkdir()
    command = [sys.executable, "-m", "graphs.cli", "serve", "calculator", "--port", "0", "--weights", str(weights)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as server:
        assert server.stdout is not None
        try:
            (url,) = re.findall(r"http://[\d.:]+", server.stdout.readline())
            servers = ["--servers.urls", url, "--servers.weights", str(weights), "--servers.context-length", "64"]
            options = ["--options.folder", str(folder), "--options.name", "remote", "--rl.steps", str(steps)]
            headrace(["run", "calculator", *options, *SMALL.split(), "servers:http-config", *servers])
            bearer = {"Authorization": f"Bearer {os.environ['HEADRACE_TOKEN']}"}
            version = httpx2.get(f"{url}/weight_info", headers=bearer, trust_env=False).json()["weight_version"]
        finally:
            server.terminate()
    print(f"{steps} steps, and the server samples from version {version}: {version == str(steps)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        print("skipped: it needs pip install 'headrace[serve]'")
    else:
        with tempfile.TemporaryDirectory() as place:
            main(arguments.steps, Path(place))
