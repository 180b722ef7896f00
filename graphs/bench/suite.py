"""The experiments by name, in the order in which they are run and shown: the only place where a name becomes one."""

from collections.abc import Mapping

from graphs.bench.baseline.experiment import BASELINE
from graphs.bench.engines.experiment import ENGINES_EXPERIMENT
from graphs.bench.experiment import Experiment
from graphs.bench.gate.experiment import GATE
from graphs.bench.grouping.experiment import GROUPING
from graphs.bench.recovery.experiment import RECOVERY

EXPERIMENTS: Mapping[str, Experiment] = {each.name: each for each in (BASELINE, GROUPING, ENGINES_EXPERIMENT, RECOVERY, GATE)}
