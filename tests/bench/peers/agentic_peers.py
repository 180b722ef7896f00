"""Training with tools against tunix and TRL on the same work: complete groups per minute, learning, failures, memory, start.

Each system trains in a process of its own (``agentic_headrace.py``, ``agentic_tunix.py``, ``agentic_trl.py``) that reads one
workload and tells what happened and when; all figures come out of that by one set of rules. What is found is kept like the
findings of ``headrace bench``, as ``peers.json``, and is part of its page. ``make bench-peers`` puts the peers in place first.

    python tests/bench/peers/agentic_peers.py GGUF [--short] [--out FOLDER] [--FIELD VALUE]
"""

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

sys.path.insert(0, str(Path(__file__).parents[3]))
from agentic_figures import figures
from agentic_findings import TITLES, Trial, best, findings
from agentic_pretrained import write_pretrained
from agentic_process import Ended, run
from agentic_settings import Choice, PeersConfig, Setting, choices, heldout_of, size_of, workload_of
from agentic_world import Workload, write
from install import LOGS, MODEL, PYTHON_TRL, PYTHON_TUNIX

from graphs.bench.delays import DelaysConfig
from graphs.bench.experiment import Experiment, Findings, Tell
from graphs.bench.kept import write_kept
from graphs.bench.measured import measured
from graphs.bench.text import text
from graphs.settings import read_settings

HERE = Path(__file__).parent
OUT = Path("runs/bench")
PYTHONS = {"agentic_headrace.py": sys.executable, "agentic_tunix.py": PYTHON_TUNIX, "agentic_trl.py": PYTHON_TRL}
SHORT = PeersConfig(
    settings=("turns", "failing"), systems=("headrace", "grpo_sync"), group_size=2, groups_per_update=2, updates=3, warm=1,
    turns=2, delays=DelaysConfig(seconds=(0.0, 0.01, 0.05)), failing=0.3, response_tokens=32, heldout=2,
)  # fmt: skip


def measure(config: PeersConfig, tell: Tell, gguf: Path | None = None) -> Findings:
    """Every choice in every setting, then the scores.

    Args:
        config: of the comparison.
        tell: hears how far it is.
        gguf: vocabulary of SmolLM2; ``None`` where it takes no part.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    work = [(setting, choice) for setting in config.settings for choice in choices(config, setting)]
    found: dict[Setting, list[Trial]] = {setting: [] for setting in config.settings}
    with tempfile.TemporaryDirectory() as folder:
        place = Place(config, Path(folder), gguf)
        for at, (setting, choice) in enumerate(work):
            tell(at, len(work) + 1, f"{TITLES[setting].lower()}: {choice.system} {choice.label}".rstrip())
            found[setting].append(place.trial(setting, choice))
        tell(len(work), len(work) + 1, "held-out scores")
        before, scored = place.scores(found)
    return findings(config, scored, before)


class Place:
    """A folder in which trainings are run.

    Args:
        config: of the comparison.
        folder: for all files.
        gguf: see ``measure``.
    """

    def __init__(self, config: PeersConfig, folder: Path, gguf: Path | None) -> None:
        self._config, self._folder = config, folder
        self._model, self._even, self._pretrained = folder / "model", folder / "even", folder / "pretrained" / "model"
        if "pretrained" in config.settings:
            if gguf is None:
                raise SystemExit(
                    "expected the GGUF file of SmolLM2 as the first argument, got none; name it, or leave the setting out"
                )
            write_pretrained(gguf, MODEL / "hf", self._pretrained)
        self._weights: dict[tuple[Setting, str, str], Path] = {}
        self._written(workload_of(config, "single", self._model, self._pretrained))
        if "even" in config.settings:
            self._written(workload_of(config, "even", self._even, self._pretrained))

    def _written(self, workload: Workload) -> None:
        """Write the model of a workload."""
        file = self._folder / "write.json"
        write(workload, file)
        ended = self._ours("write", file, Path(workload.model))
        if ended.code != 0:
            raise RuntimeError(f"expected the model to be written, got exit code {ended.code}:\n{ended.tail}")

    def trial(self, setting: Setting, choice: Choice) -> Trial:
        """A training; one that breaks is begun again, one that hangs is not."""
        model = self._even if setting == "even" else self._model
        workload = workload_of(self._config, setting, model, self._pretrained)
        file = self._folder / f"{setting}.json"
        write(workload, file)
        codes: list[int | None] = []
        while not codes or (codes[-1] not in (0, None) and len(codes) < self._config.tries):
            name = f"{setting}-{choice.script.split('.')[0]}-{len(self._weights)}-{len(codes)}"
            weights = self._folder / "weights" / name
            ended = self._run(choice, file, weights, name)
            codes.append(ended.code)
        self._weights[setting, choice.system, choice.label] = weights
        found = figures(ended.events, ended.spawned, workload.group_size, size_of(self._config, setting)[1])
        if found.broke is None and ended.code != 0:
            found = replace(found, broke=_last_words(ended))
        return Trial(choice.system, choice.label, found, codes, ended.peak_bytes)

    def scores(self, found: Mapping[Setting, Sequence[Trial]]) -> tuple[float | None, dict[Setting, list[Trial]]]:
        """What the untrained policy scores in several turns, and the trials with the scores of the best of each system."""
        by_weights: dict[str, float] = {}
        for turns in {1, self._config.turns}:
            wanted = self._wanted(found, turns)
            if wanted.exists():
                workload = self._folder / f"heldout-{turns}.json"
                write(heldout_of(self._config, turns, self._model), workload)
                ended = self._ours("score", workload, wanted)
                by_weights |= {event["name"]: event["score"] for event in ended.events if event["event"] == "scored"}
        scored = {
            setting: [
                replace(trial, score=by_weights.get(self._weights[setting, trial.system, trial.label].name)) for trial in trials
            ]
            for setting, trials in found.items()
        }
        return by_weights.get(f"before-{self._config.turns}"), scored

    def _wanted(self, found: Mapping[Setting, Sequence[Trial]], turns: int) -> Path:
        """A folder with the weights that are to be scored in so many turns."""
        wanted = self._folder / f"scored-{turns}"
        for setting, trials in found.items():
            if setting in ("even", "pretrained") or (setting == "single") != (turns == 1):
                continue
            wanted.mkdir(exist_ok=True)
            if not (wanted / f"before-{turns}").exists():
                (wanted / f"before-{turns}").symlink_to(self._model)
            for trial in best(trials).values():
                weights = self._weights[setting, trial.system, trial.label]
                if trial.whole and weights.exists():
                    (wanted / weights.name).symlink_to(weights)
        return wanted

    def _run(self, choice: Choice, workload: Path, weights: Path, name: str) -> Ended:
        settings = json.dumps(choice.settings)
        command: list[str | Path] = [
            PYTHONS[choice.script],
            HERE / choice.script,
            workload,
            self._folder / "events",
            weights,
            settings,
        ]
        return run(command, self._folder / "events", LOGS / f"agentic-{name}.log", self._config.timeout_s, choice.environment)

    def _ours(self, what: str, workload: Path, folder: Path) -> Ended:
        command = [sys.executable, HERE / "agentic_headrace.py", workload, self._folder / "events", folder, what]
        cpu = {"JAX_PLATFORMS": "cpu"}
        return run(command, self._folder / "events", LOGS / f"agentic-{what}.log", self._config.timeout_s, cpu)


def _last_words(ended: Ended) -> str:
    last = ended.tail.splitlines()[-1:] or ["it printed nothing"]
    return "it hung" if ended.code is None else f"exit code {ended.code}: {last[0]}"[:200]


def experiment(gguf: Path | None) -> Experiment:
    """As every experiment is described."""
    return Experiment(
        name="peers",
        title="Peers: training with tools against tunix and TRL on the same work",
        question=(
            "How many complete groups a minute does training an agent get, how soon, in how much memory, and what does it "
            "learn, beside google-tunix's agentic GRPO and TRL's GRPO? All load one small model and play the same tasks, in a "
            "single turn, in several turns with tools a few of which take a hundred times as long as most, and with episodes "
            "that fail. Each peer has the best of several choices; what was done for it is told below. Rates are taken after "
            "a warm-up in which programs are compiled."
        ),
        config=PeersConfig,
        short=SHORT,
        run=lambda config, tell: measure(config, tell, gguf),
        long=True,
    )


def main(arguments: Sequence[str]) -> int:
    """Measure, keep, print; the exit status says whether every claim held."""
    short = "--short" in arguments

    @dataclasses.dataclass(frozen=True)
    class Options:
        gguf: tyro.conf.Positional[Path | None] = None
        config: Annotated[PeersConfig, tyro.conf.arg(name="")] = dataclasses.field(
            default_factory=lambda: SHORT if short else PeersConfig()
        )
        short: tyro.conf.FlagCreatePairsOff[bool] = False
        out: Path = OUT

    options = read_settings(Options, list(arguments), "agentic_peers.py")
    told = experiment(options.gguf)
    kept = measured(told, options.config, "make bench-peers", _tell, short=options.short)
    print(text(kept, shutil.get_terminal_size((160, 40)).columns))
    print(f"\nkept: {write_kept(options.out, kept)}")
    return 0 if kept.holds else 1


def _tell(done: int, total: int, what: str) -> None:
    print(f"peers: {done} of {total}, {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
