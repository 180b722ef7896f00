import asyncio
from collections import Counter

import msgspec
import numpy as np
import pytest

from flow import Collect, Context, Failed, Freshness, Gathered, Graph, Retry, Run, Shrink
from flow.testing import simulate
from stages.advantages.stage import Advantages, AdvantagesConfig
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.batches.stage import Pack, PackConfig
from stages.envs.custom import CustomEnv, over
from stages.episodes import Episodes
from stages.losses.tokens import Needs
from stages.outcomes import MAX_LABELS, MAX_SOURCES, Outcomes, OutcomesState, label_of
from stages.records import Batch, Episode, EpisodeRow, Group, Segment, Status, Task
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.tasks.source import Tasks
from stages.text.compact import CompactChat

KINDS = ("sound", "equal", "broken", "slow", "cut")
TASKS = [
    Task(f"{kind}{number}", "?", source=kind, difficulty=("easy", "hard")[number % 2]) for kind in KINDS for number in range(8)
]


def episode_of(task: Task, context: Context, status: Status = Status.FINISHED, reward: float = 1.0) -> Episode:
    mask = np.array([False, True, True])
    return Episode(
        task, context.birth, context.member, context.retry, np.array([1, 2, 3], np.int32), mask,
        np.where(mask, -0.5, np.nan).astype(np.float32), np.where(mask, 0, -1).astype(np.int32), (), (), status, reward=reward,
    )  # fmt: skip


async def play(task: Task, context: Context) -> Episode | Failed[Episode]:
    """``equal`` gives all members one reward, ``broken`` fails every second task, ``slow`` takes forty times as long."""
    await asyncio.sleep((1 + (context.birth * 7 + context.member * 3) % 5) * (40 if task.source == "slow" else 1))
    if task.source == "broken" and int(task.id[-1]) % 2:
        return Failed(episode_of(task, context, Status.TIMED_OUT), "timed_out")
    return episode_of(task, context, reward=0.5 if task.source == "equal" else float(context.member))


class FakeTrainer:
    """Collects as a trainer does, reports its steps, and skips the update of every fourth."""

    def __init__(self, pause_s: float = 0.5) -> None:
        self.pause_s = pause_s
        self.added: dict[int, Batch] = {}
        self.steps: list[list[Batch]] = []

    async def add(self, batch: Batch, context: Context) -> None:
        self.added[batch.birth] = batch
        await asyncio.sleep(self.pause_s)

    def finish(self, context: Context) -> int:
        batches, self.added = list(self.added.values()), {}
        self.steps.append(batches)
        context.report({"step": len(self.steps), "skipped": "not_finite" if len(self.steps) % 4 == 0 else None})
        return len(self.steps)


class Watching:
    """Passes on to the outcomes what a run folder does."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes

    def committed(self, node, values):
        for value in values:
            if isinstance(value, Episode):
                self.outcomes.episode(value)

    def reported(self, node, row):
        if "step" in row:
            self.outcomes.stepped(row["skipped"])


def training(trainer: FakeTrainer, *, late="drop", missing=Retry(1, then="drop"), episodes=play, steps=16, silent=False):  # noqa: B008
    graph = Graph("training")
    cell = graph.latest("weights", int)
    prompts = graph.source("prompts", Tasks(TASKS, 3))
    members = graph.repeat("members", prompts, n=2)
    played = graph.stage("episodes", episodes, workers=16, reads=cell, budget=None)
    groups = graph.group("groups", played, missing=missing, budget=None)
    rewards = graph.stage("rewards", Rewards({"own": (lambda episode: episode.reward, 1.0)}))
    filtering = AdvantagesConfig(filter_no_signal=not silent)
    advantages = graph.stage("advantages", Advantages(filtering), budget=None)
    batches = graph.stage("batches", Pack(PackConfig(row_length=64), Needs()))
    sink = graph.sink("trainer", trainer, collect=Collect(4, steps=steps))
    prompts >> members >> played >> groups >> rewards >> advantages >> batches >> sink
    graph.feedback(sink, cell, initial=0, freshness=Freshness(max_lag=2, late=late))
    return graph


def ends(report, *, among=None) -> Counter[str]:
    counted: Counter[str] = Counter()
    for source, told in report.items():
        if among is None or source in among:
            counted.update(told["ends"])
    return counted


@pytest.mark.parametrize("seed", range(4))
def test_what_was_drawn_is_what_was_trained_and_each_reason_of_each_source(seed):
    """S40, S77: filters, failures, staleness, skipped updates and killed workers; nothing is lost without a word."""
    trainer, rows = FakeTrainer(), []
    outcomes = Outcomes(rows.append)
    ran = simulate(training(trainer), seed, kill=0.01, watchers=[Watching(outcomes)], tally=outcomes)
    report = outcomes.report()
    for told in report.values():
        assert told["drawn"] == sum(told["ends"].values())
        assert told["unfinished"] == 0
        for name in ("drawn", "trained"):
            assert told[name] == sum(part[name] for part in told["difficulties"].values())
    assert sum(told["drawn"] for told in report.values()) == ran.summary.nodes["prompts"].emitted
    # By the trainer's own book: what was in the steps that were applied.
    applied = Counter(b.episodes[0].source for n, step in enumerate(trainer.steps, 1) for b in step if n % 4)
    assert {source: told["trained"] for source, told in report.items() if told["trained"]} == dict(applied)
    nodes = ran.summary.nodes
    assert ends(report)["no_signal"] == nodes["advantages"].dropped.get("no_signal", 0) > 0
    assert ends(report)["member failed: timed_out"] == nodes["groups"].dropped["member failed: timed_out"] > 0
    assert ends(report)["update skipped"] == 16
    assert set(report["equal"]["ends"]) <= {"no_signal", "stale", "surplus", "member failed: surplus"}
    # Shares are of what was drawn and of what was trained.
    assert sum(told["drawn_share"] for told in report.values()) == pytest.approx(1)
    assert sum(told["trained_share"] for told in report.values()) == pytest.approx(1)
    assert report["equal"]["trained_share"] == 0 < report["equal"]["drawn_share"]
    # The rows of the steps add up to the same, as far as they go.
    assert len(rows) == 16
    for source in KINDS:
        assert sum(row.get(f"trained/{source}", 0) for row in rows) == report[source]["trained"]
        assert sum(row.get(f"drawn/{source}", 0) for row in rows) <= report[source]["drawn"]
    # S74: groups that are filtered before the trainer are told with the steps too, but for those after the last.
    filtered = sum(row["no_signal_filtered"] for row in rows)
    assert nodes["advantages"].dropped["no_signal"] - 8 <= filtered <= nodes["advantages"].dropped["no_signal"]
    assert filtered > 16


def test_slow_tasks_are_seen_to_be_dropped_for_age():
    """``late="drop"`` takes from the slow ones only: their share of what is trained says so."""
    outcomes = Outcomes()
    simulate(training(FakeTrainer(), steps=40), tally=outcomes)
    report = outcomes.report()
    assert report["slow"]["ends"]["stale"] > 0
    assert report["slow"]["trained_share"] < report["slow"]["drawn_share"] / 2 < report["cut"]["trained_share"]


def test_groups_without_a_signal_that_are_not_filtered_end_silent():
    outcomes = Outcomes()
    simulate(training(FakeTrainer(), late="wait", silent=True), tally=outcomes)
    assert set(outcomes.report()["equal"]["ends"]) <= {"silent", "surplus", "member failed: surplus"}
    assert outcomes.report()["equal"]["ends"]["silent"] > 0


def test_a_group_whose_failed_members_are_missing_is_still_its_sources():
    outcomes = Outcomes()
    graph = training(FakeTrainer(), late="wait", missing=Shrink(0), silent=True)
    simulate(graph, watchers=[Watching(outcomes)], tally=outcomes)
    broken = outcomes.report()["broken"]
    assert broken["unfinished"] == 0
    assert broken["episodes"]["timed_out"] >= 2 * broken["ends"]["silent"]


class Quiz(CustomEnv):
    """One question, answered with the number of the member; every second broken task does not open."""

    def reset(self, task: Task, key):
        if task.source == "broken" and int(task.id[-1]) % 2:
            raise OSError("no such room")
        self.reward = 0.5 if task.source == "equal" else float(key[2])
        return task.prompt

    def step(self, message):
        return over("done")

    def score(self):
        return self.reward


def test_outcomes_of_real_episodes_add_up():
    """The same with the episode stage, environments in threads and a scripted policy, in real time."""
    outcomes, trainer = Outcomes(), FakeTrainer(pause_s=0)
    chat = CompactChat()
    stage = Episodes(ScriptedPolicy(chat, ["yes"]), chat, ModelAgent(), lambda task: Quiz(), SamplingConfig())
    graph = training(trainer, episodes=stage, steps=4)
    graph = graph.replace("rewards", Rewards({"own": (lambda episode: float(sum(episode.parts.values())), 1.0)}))
    summary = asyncio.run(
        Run(graph.build(quiet=True), watchers=[Watching(outcomes)], tally=outcomes).finish()
    )  # fmt: skip
    report = outcomes.report()
    assert all(told["drawn"] == sum(told["ends"].values()) for told in report.values())
    assert sum(told["drawn"] for told in report.values()) == summary.nodes["prompts"].emitted
    assert sum(told["trained"] for told in report.values()) == 12
    assert ends(report, among=("equal",)).keys() <= {"no_signal", "surplus", "member failed: surplus"}
    assert (
        ends(report)["member failed: environment_error"] == summary.nodes["groups"].dropped["member failed: environment_error"]
    )


def row(source="a", difficulty=None) -> EpisodeRow:
    return EpisodeRow(Status.FINISHED, 1.0, 2, 1, 0.1, source=source, difficulty=difficulty)


def batch(source="a") -> Batch:
    segment = Segment(np.array([1, 2], np.int32), np.array([False, True]))
    return Batch(0, ((segment,),), 1.0, (row(source),))


@pytest.mark.parametrize("row_first", [True, False])
def test_a_skipped_update_trains_nothing_whether_its_row_comes_before_or_after(row_first):
    outcomes = Outcomes()
    outcomes.drawn("prompts", [Task(str(i), "?", source="a") for i in range(3)])
    for skipped in (None, "not_finite", None):
        if row_first:
            outcomes.stepped(skipped)
        outcomes.ended("trainer", [batch()], None)
        if not row_first:
            outcomes.stepped(skipped)
    assert outcomes.report()["a"]["ends"] == {"trained": 2, "update skipped": 1}


def test_a_row_of_a_step_has_few_names_however_many_sources_there_are():
    rows = []
    outcomes = Outcomes(rows.append)
    for number in range(MAX_LABELS + 40):
        outcomes.drawn("prompts", [Task("t", "?", source=f"s{number}")])
        outcomes.ended("trainer", [batch(f"s{number}")], None)
        outcomes.stepped(None)
    assert max(map(len, rows)) == 4 * (MAX_SOURCES + 1) + 1
    assert {name.split("/")[1] for name in rows[-1] if "/" in name} == {"other", *(f"s{n}" for n in range(MAX_SOURCES))}
    assert rows[-1]["trained/other"] == 1
    assert sum(count for row in rows for name, count in row.items() if name.startswith("trained/")) == MAX_LABELS + 40
    assert len(outcomes.report()) == MAX_LABELS + 1


def test_what_another_sink_takes_is_no_part_of_what_was_drawn_to_train():
    outcomes = Outcomes()
    outcomes.drawn("prompts", [Task("1", "?", source="a"), Task("2", "?", source="held")])
    outcomes.ended("trainer", [batch()], None)
    outcomes.ended("scores", [Task("2", "?", source="held")], None)
    assert outcomes.report()["held"]["ends"] == {"taken": 1}
    assert [outcomes.report()[source]["drawn_share"] for source in ("a", "held")] == [1.0, 0.0]


def test_counts_go_on_where_they_were_saved():
    whole, half = Outcomes(), Outcomes()
    for outcomes in (whole, half):
        outcomes.drawn("prompts", [Task("1", "?", source="a", difficulty="hard")])
        outcomes.ended("trainer", [batch()], None)
        outcomes.stepped(None)
    saved = msgspec.msgpack.encode(half.state())
    half.ended("trainer", [batch()], None)
    resumed = Outcomes()
    resumed.restore(msgspec.msgpack.decode(saved, type=OutcomesState))
    for outcomes in (whole, resumed):
        outcomes.stepped("not_finite")
        outcomes.ended("trainer", [batch("b")], None)
    assert resumed.report() == whole.report()
    assert resumed.state() == whole.state()


def test_what_does_not_say_its_source_is_not_counted():
    outcomes = Outcomes()
    outcomes.drawn("sets", [("examples",)])
    outcomes.ended("trainer", [Batch(0, (), 1.0)], None)
    assert outcomes.report() == {}


def test_a_label_is_read_from_whatever_was_made_of_a_task():
    task = Task("1", "?", source="a", difficulty="easy")
    played = msgspec.structs.replace(episode_of(task, SAID), reward=None)
    gathered = Gathered(0, (), ("lost",), "shrunk", (played,))
    batched = Batch(0, (), 1.0, (row("a", "easy"),))
    for value in (task, played, gathered, Group(0, (played,)), batched):
        assert label_of(value) == ("a", "easy")
    assert label_of(Gathered(0, (), ("lost",), "shrunk")) is None
    assert label_of(Task("1", "?")) == ("unnamed", None)


class Said:
    birth = member = retry = 0


SAID = Said()
