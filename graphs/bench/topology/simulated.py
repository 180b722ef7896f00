"""The training in virtual time: the product's scheduler over stages that take the times that were measured, on shared devices.

What runs on one mesh runs one after the other there, in the order in which it was asked for: a step of the engine, a gradient
of a group, its scores. So roles that share a mesh take turns, and roles with meshes of their own overlap. The work of a
role on n devices takes its time on one, over n times an efficiency; tools and the host take what they took.
"""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from flow import Collect, Context, Freshness, Gathered, Graph
from flow.testing import simulate
from graphs.bench.topology.job import GROUP_SIZE, ROLES


@dataclass(frozen=True)
class Turn:
    """A turn of an episode.

    Attributes:
        read: tokens of its context that were new.
        sampled: tokens.
        host_s: between the episode and the engine, both ways.
        tool_s: that the environment took to answer.
    """

    read: int
    sampled: int
    host_s: float
    tool_s: float


@dataclass(frozen=True)
class Script:
    """An episode that was measured.

    Attributes:
        turns: of it.
        host_s: what it took besides, on the host.
    """

    turns: tuple[Turn, ...]
    host_s: float


@dataclass(frozen=True)
class Times:
    """Seconds on one device, and on the host.

    Attributes:
        prefill_s: engine, a step that reads contexts in.
        decode_s: engine, a step that samples, for however many slots.
        engine_host_s: what lies between two steps of the engine.
        score_s: reference, a group.
        gradient_s: trainer, a group.
        update_s: trainer, a step.
        finish_host_s: what the end of a step takes besides.
        credit_s: rewards, advantages and packing of a group.
        episodes: by task, in the order of the groups, and by member.
    """

    prefill_s: float
    decode_s: float
    engine_host_s: float
    score_s: float
    gradient_s: float
    update_s: float
    finish_host_s: float
    credit_s: float
    episodes: tuple[tuple[Script, ...], ...]


@dataclass(frozen=True)
class Schedule:
    """How training waits.

    Attributes:
        name: of it.
        max_lag: versions.
        holds: whether all of a step is made before any of it is trained.
    """

    name: str
    max_lag: int
    holds: bool = False


AHEAD, ON_POLICY, SYNC = Schedule("max_lag=1", 1), Schedule("max_lag=0", 0), Schedule("grpo_sync", 0, holds=True)
_MOMENT_S = 1e-6
"""What is asked within it after a pause goes into one step of the engine."""
SCHEDULES = (AHEAD, ON_POLICY, SYNC)


@dataclass(frozen=True)
class Layout:
    """Devices and what limits them.

    Attributes:
        devices: by role, and whether it shares those of the trainer.
        efficiency: what is left of the rate of a device each time that their number doubles; 1 loses nothing.
        load_s: seconds of a weight sync.
        slots: of the engine.
        prefill: rows of its largest step that reads in, and tokens of a row.
        max_concurrency: episodes at once.
        groups_per_step: groups.
        steps: of the trainer.
    """

    devices: Mapping[str, tuple[int, bool]]
    efficiency: float
    load_s: float
    slots: int
    prefill: tuple[int, int]
    max_concurrency: int
    groups_per_step: int
    steps: int


@dataclass(frozen=True)
class Played:
    """What came of it.

    Attributes:
        seconds: virtual ones, to the end.
        groups_per_minute: that were trained.
        busy: share of the time in which the mesh of each role worked for it.
    """

    seconds: float
    groups_per_minute: float
    busy: Mapping[str, float]


def speedup(devices: int, efficiency: float) -> float:
    """How many times as fast as one."""
    return devices * efficiency ** math.log2(devices)


def played(times: Times, layout: Layout, schedule: Schedule) -> Played:
    """Run the training in virtual time.

    Args:
        times: of its work.
        layout: of its devices.
        schedule: what waits for what.
    """
    shared = asyncio.Lock()
    meshes = {role: _Mesh(shared if shares else asyncio.Lock(), speedup(devices, layout.efficiency))
              for role, (devices, shares) in layout.devices.items()}  # fmt: skip
    done = simulate(_declared(times, layout, schedule, meshes))
    num_groups = layout.steps * layout.groups_per_step
    busy = {role: meshes[role].busy_s / done.seconds for role in ROLES}
    return Played(done.seconds, 60 * num_groups / done.seconds, busy)


class _Mesh:
    """Devices of a role, which it may share."""

    def __init__(self, lock: asyncio.Lock, speedup: float) -> None:
        self._lock, self._speedup = lock, speedup
        self.busy_s = 0.0

    async def work(self, seconds: float) -> None:
        """Take so many seconds of one device."""
        async with self._lock:
            await asyncio.sleep(seconds / self._speedup)
        self.busy_s += seconds / self._speedup


class _Episodes:
    """Episodes by script, and the engine under them: requests join it between two steps, as many as it has slots."""

    def __init__(self, times: Times, mesh: _Mesh, layout: Layout) -> None:
        self._times, self._mesh, self._slots, self._prefill = times, mesh, layout.slots, layout.prefill
        self._asked: list[tuple[Turn, asyncio.Future[None]]] = []
        self._running: list[tuple[int, asyncio.Future[None]]] = []
        self._called = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._engine = asyncio.get_running_loop().create_task(self._steps())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._engine.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._engine

    async def __call__(self, task: int, context: Context) -> int:
        script = self._times.episodes[task % len(self._times.episodes)][context.member]
        await asyncio.sleep(script.host_s)
        for turn in script.turns:
            await asyncio.sleep(turn.host_s)
            said = asyncio.get_running_loop().create_future()
            self._asked.append((turn, said))
            self._called.set()
            await said
            await asyncio.sleep(turn.tool_s)
        return task

    async def _steps(self) -> None:
        while True:
            if not self._asked and not self._running:
                self._called.clear()
                await self._called.wait()
                await asyncio.sleep(_MOMENT_S)
            free = self._slots - len(self._running)
            begun, self._asked = self._asked[:free], self._asked[free:]
            rows, chunk = self._prefill
            for _ in range(math.ceil(sum(math.ceil(turn.read / chunk) for turn, _ in begun) / rows)):
                await self._mesh.work(self._times.prefill_s)
            self._running += [(turn.sampled, said) for turn, said in begun]
            await self._mesh.work(self._times.decode_s)
            await asyncio.sleep(self._times.engine_host_s)
            left = [(sampled - 1, said) for sampled, said in self._running]
            for sampled, said in left:
                if sampled <= 0 and not said.done():
                    said.set_result(None)
            self._running = [(sampled, said) for sampled, said in left if sampled > 0]


class _Trainer:
    """Takes gradients as groups come, or all of them at the end of the step."""

    def __init__(self, times: Times, mesh: _Mesh, *, holds: bool) -> None:
        self._times, self._mesh, self._holds = times, mesh, holds
        self._held = self._steps = 0

    async def add(self, group: int, context: Context) -> None:
        """Take a group in."""
        if self._holds:
            self._held += 1
        else:
            await self._mesh.work(self._times.gradient_s)

    async def finish(self, context: Context) -> int:
        """End a step."""
        for _ in range(self._held):
            await self._mesh.work(self._times.gradient_s)
        await self._mesh.work(self._times.update_s)
        await asyncio.sleep(self._times.finish_host_s)
        self._held, self._steps = 0, self._steps + 1
        return self._steps


def _declared(times: Times, layout: Layout, schedule: Schedule, meshes: Mapping[str, _Mesh]) -> Graph:
    """The line of ``graphs.rl``, with what takes time in the place of its stages."""

    async def score(group: Gathered[int], context: Context) -> int:
        await meshes["reference"].work(times.score_s)
        return group.members[0]

    async def credit(group: int, context: Context) -> int:
        await asyncio.sleep(times.credit_s)
        return group

    async def load(weights: int, version: int) -> None:
        await asyncio.sleep(layout.load_s if version else 0.0)

    graph = Graph("placed")
    weights = graph.latest("weights", int, load=load)
    prompts = graph.source("prompts", range(layout.steps * layout.groups_per_step))
    members = graph.repeat("members", prompts, n=GROUP_SIZE)
    played_episodes = _Episodes(times, meshes["engine"], layout)
    episodes = graph.stage("episodes", played_episodes, workers=layout.max_concurrency, reads=weights)
    groups = graph.group("groups", episodes)
    reference = graph.stage("reference", score)
    credited = graph.stage("credit", credit)
    collect = Collect(layout.groups_per_step, steps=layout.steps)
    trainer = graph.sink("trainer", _Trainer(times, meshes["trainer"], holds=schedule.holds), collect=collect)
    prompts >> members >> episodes >> groups >> reference >> credited >> trainer
    graph.feedback(trainer, weights, initial=0, freshness=Freshness(max_lag=schedule.max_lag))
    return graph


def mean(values: Sequence[float]) -> float:
    """Of at least one."""
    return sum(values) / len(values)
