"""The experiments by name, in the order in which they are run and shown: the only place where a name becomes one."""

from collections.abc import Mapping

from graphs.bench.baseline.experiment import BASELINE
from graphs.bench.engines.experiment import ENGINES_EXPERIMENT
from graphs.bench.experiment import Experiment
from graphs.bench.failing import FAILING
from graphs.bench.gate.experiment import GATE
from graphs.bench.grouping.experiment import GROUPING
from graphs.bench.idle import IDLE
from graphs.bench.plan import PLAN
from graphs.bench.pressure import PRESSURE
from graphs.bench.recovery.experiment import RECOVERY
from graphs.bench.staleness.experiment import STALENESS
from graphs.bench.stragglers import STRAGGLERS
from graphs.bench.topology.experiment import TOPOLOGY

_ALL = (BASELINE, STRAGGLERS, GROUPING, TOPOLOGY, ENGINES_EXPERIMENT, PRESSURE, RECOVERY, GATE, IDLE, FAILING, PLAN, STALENESS)
EXPERIMENTS: Mapping[str, Experiment] = {each.name: each for each in _ALL}
