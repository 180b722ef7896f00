"""Everything that can happen to an episode, over one script; long because no part of it is a case of its own."""

import asyncio
import contextlib
import time
from decimal import Decimal

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from flow import Context, Failed
from flow._context import Desk
from flow._core.item import Item
from flow._spans import listen
from stages.agents.custom import CustomAgent
from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import Opening, Reply
from stages.envs.pool import EnvPool
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes, PromptError, check_tasks
from stages.policy import Sample
from stages.records import Message, Status, Task
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.tools.function import FunctionTool
from stages.tools.tool import BrokenToolError

CALCULATOR = calculator_tool()
CHAT = CompactChat([CALCULATOR])
TASK = Task("t", "2*3", "6")
CALL, ANSWER = "<|calculator|>2*3<|end|>", "6<|end|>"
TOKENS = {token: index for index, token in enumerate(CHAT.vocabulary.tokens)}


class Unfinished(str):
    """The beginning of a turn that goes on until it is aborted."""


class ScriptedPolicy:
    """Says the turns of a script in order, cut to the budget of the request; an exception in the script is raised, and where it
    says nothing, the policy hangs and heeds no abort.
    """

    def __init__(self, *script, context_length=100):
        self.script = list(script)
        self.aborted = asyncio.Event()
        self.aborts = []
        self.context_length = context_length
        self.requests = []
        self.released = []

    async def sample(self, request):
        self.requests.append(request)
        line = self.script[len(self.requests) - 1]
        await anyio.lowlevel.checkpoint()
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, Sample):
            return line
        if line is None:
            await anyio.sleep_forever()
        if isinstance(line, Unfinished):
            await self.aborted.wait()
        ids = encode(line)[: request.max_tokens]
        logprobs = -0.5 - np.arange(len(ids), dtype=np.float32)
        stop = "aborted" if self.aborted.is_set() else "stop" if ids[-1] in request.stop_ids else "length"
        return Sample(ids, logprobs, np.full(len(ids), 3, np.int32), stop)

    def release(self, session):
        self.released.append(session)

    def abort(self, session):
        self.aborts.append(session)
        self.aborted.set()


class Watched(ToolEnv):
    """A real tool environment that counts what is done to it and fails where it is told to."""

    made = ()

    def __init__(self, tools=(CALCULATOR,), **trouble):
        super().__init__(tools, scorer=trouble.pop("scorer", None))
        self.trouble = trouble
        self.closed = 0
        Watched.made = (*Watched.made, self)

    async def _trouble(self, where):
        await anyio.lowlevel.checkpoint()
        trouble = self.trouble.get(where)
        if isinstance(trouble, BaseException):
            raise trouble
        if trouble == "hang":
            await anyio.sleep_forever()

    async def reset(self, task, key):
        await self._trouble("reset")
        return await super().reset(task, key)

    async def step(self, message):
        await self._trouble("step")
        return await super().step(message)

    async def score(self):
        await self._trouble("score")
        return await super().score()

    async def close(self):
        self.closed += 1
        await self._trouble("close")


def encode(text):
    ids = []
    while text:
        token = next(t for t in sorted(TOKENS, key=len, reverse=True) if text.startswith(t))
        ids.append(TOKENS[token])
        text = text[len(token) :]
    return np.array(ids, np.int32)


class Spans:
    """A listener that keeps the names of spans, those of ``Context.span`` and of ``flow.span``."""

    def __init__(self):
        self.names = []

    @contextlib.contextmanager
    def span(self, name, args, flows=()):
        self.names.append(name)
        yield


def context(spans=None):
    span = (Spans() if spans is None else spans).span

    def refuse(*_):
        raise LookupError

    return Context(Desk("episodes", refuse, refuse, span, refuse), Item(None, (4, 1), 9, 1, 2), attempt=5)


def episodes(policy, env=Watched, sampling=None, limits=None, agent=None):
    Watched.made = ()
    sampling = sampling or SamplingConfig(max_tokens_per_turn=16, max_turns=4, seed=11)

    async def make(task):
        return env()

    return Episodes(policy, CHAT, agent or ToolAgent(), make, sampling, limits)


def run(policy, **kwargs):
    return asyncio.run(episodes(policy, **kwargs)(TASK, context()))


def failed(policy, **kwargs):
    outcome = run(policy, **kwargs)
    assert isinstance(outcome, Failed)
    assert [env.closed for env in Watched.made] == [1]
    assert policy.released == ["episodes/4.1/2/5"]
    assert outcome.value.status.failed
    assert (outcome.reason, outcome.detail) == (outcome.value.status, outcome.value.error)
    return outcome.value


def test_an_episode_is_the_tokens_in_order_with_what_was_sampled_marked():
    """S36, S54, S57."""
    policy = ScriptedPolicy(CALL, ANSWER)
    episode = run(policy)
    assert CHAT.decode(episode.ids) == f"<|bos|><|user|>2*3<|assistant|>{CALL}<|tool|>6<|assistant|>{ANSWER}"
    assert CHAT.decode(episode.ids[episode.mask]) == CALL + ANSWER
    np.testing.assert_array_equal(episode.logprobs[episode.mask], [-0.5, -1.5, -2.5, -3.5, -4.5, -0.5, -1.5])
    assert np.isnan(episode.logprobs[~episode.mask]).all()
    assert set(episode.versions[episode.mask]) == {3}
    assert set(episode.versions[~episode.mask]) == {-1}
    assert (episode.status, episode.error, episode.reward, episode.parts) == (Status.FINISHED, None, None, {})
    assert (episode.task, episode.birth, episode.member, episode.retry) == (TASK, 9, 1, 2)
    assert [(turn.start, turn.stop, turn.stop_reason) for turn in episode.turns] == [(6, 11, "stop"), (14, 16, "stop")]
    assert [message.role for message in episode.messages] == ["user", "assistant", "tool", "assistant"]
    assert policy.released == ["episodes/4.1/2/5"]
    assert [env.closed for env in Watched.made] == [1]


def test_requests_carry_the_whole_context_and_the_key_of_seed_birth_member_retry_and_turn():
    policy = ScriptedPolicy(CALL, ANSWER)
    episode = run(policy)
    first, second = policy.requests
    assert [first.key, second.key] == [(11, 9, 1, 2, 0), (11, 9, 1, 2, 1)]
    assert first.ids.tolist() == episode.ids[:6].tolist()
    assert second.ids.tolist() == episode.ids[:14].tolist()
    assert first.session == second.session == "episodes/4.1/2/5"
    assert second.stop_ids == CHAT.stop_ids


def test_waits_are_spans_and_times_are_kept():
    """S104."""

    async def slow(expression: str) -> str:
        """Answer late."""
        await anyio.sleep(0.02)
        return "6"

    tool = FunctionTool(slow, name="calculator")
    spans = Spans()
    stage = episodes(ScriptedPolicy(CALL, ANSWER), env=lambda: Watched([tool]))

    async def play():
        listen(spans)
        return await stage(TASK, context(spans))

    episode = asyncio.run(play())
    assert spans.names == ["setup", "reset", "model", "tool", "calculator", "model", "tool", "score", "close"]
    assert 0.02 <= episode.turns[0].tool_s <= episode.seconds
    assert episode.turns[0].model_s >= 0


def test_scores_of_the_environment_are_parts_of_the_reward():
    episode = run(
        ScriptedPolicy(ANSWER), env=lambda: Watched(scorer=lambda task, said: {"right": float(said[-1].content == task.answer)})
    )
    assert (episode.parts, episode.reward) == ({"right": 1.0}, None)
    broken = failed(ScriptedPolicy(ANSWER), env=lambda: Watched(scorer=lambda task, said: {"right": float("nan")}))
    assert broken.error == "the environment's score: expected a finite number in right, got nan"


@pytest.mark.parametrize(
    ("script", "room", "want"),
    [
        ([CALL, ANSWER], 16, Status.FINISHED),  # the answer fills the context to the last token
        ([CALL, ANSWER], 15, Status.TRUNCATED_LENGTH),  # its end token has no room
        ([CALL, ANSWER], 14, Status.TRUNCATED_LENGTH),  # the tool's reply leaves no room
        ([CALL], 10, Status.TRUNCATED_LENGTH),  # the call itself is cut
        ([ANSWER], 8, Status.FINISHED),
        ([ANSWER], 6, Status.TRUNCATED_LENGTH),  # the prompt leaves no room
    ],
)
def test_the_budget_shrinks_to_the_context_and_an_answer_already_in_counts(script, room, want):
    """S34."""
    policy = ScriptedPolicy(*script, context_length=room)
    episode = run(policy)
    assert episode.status is want
    assert (episode.error is None) == (want is Status.FINISHED)
    assert len(episode.ids) <= room
    for request in policy.requests:
        assert 1 <= request.max_tokens == min(16, room - len(request.ids))


def test_nothing_of_a_turn_that_was_cut_is_executed():
    """S47, S48: a whole call before the cut is not executed either, and the record says where it was cut."""
    ran = []

    async def act(expression: str) -> str:
        """Act."""
        ran.append(expression)
        return "6"

    two = "<|calculator|>2*3<|calculator|>2*30<|end|>"
    env = lambda: Watched([FunctionTool(act, name="calculator")])  # noqa: E731
    episode = run(ScriptedPolicy(two), env=env, sampling=SamplingConfig(max_tokens_per_turn=7))
    assert ran == []
    assert (episode.status, episode.error) == (Status.TRUNCATED_LENGTH, "turn 1 was cut after 13 tokens")
    assert episode.turns[0].stop_reason == "length"
    assert [type(call).__name__ for call in episode.messages[-1].calls] == ["ToolCall", "BadCall"]


def test_an_episode_may_have_a_token_budget_of_its_own():
    policy = ScriptedPolicy(CALL, CALL, ANSWER)
    episode = run(policy, sampling=SamplingConfig(max_tokens_per_turn=6, max_tokens_per_episode=8))
    assert [request.max_tokens for request in policy.requests] == [6, 3]
    assert (episode.status, episode.num_sampled) == (Status.TRUNCATED_LENGTH, 8)


def test_the_last_turn_may_answer_but_not_call():
    sampling = SamplingConfig(max_tokens_per_turn=16, max_turns=2)
    assert run(ScriptedPolicy(CALL, ANSWER), sampling=sampling).status is Status.FINISHED
    cut = run(ScriptedPolicy(CALL, CALL), sampling=sampling)
    assert (cut.status, cut.error) == (Status.TRUNCATED_TURNS, "no answer in 2 turns")
    assert cut.turns[0].tool_s is not None
    assert cut.turns[1].tool_s is None


def test_a_malformed_call_is_answered_and_the_episode_goes_on():
    """S44."""
    episode = run(ScriptedPolicy("<|calculator|><|end|>", CALL, ANSWER))
    assert episode.status is Status.FINISHED
    assert "<|tool|>error: expected text, got none<|assistant|>" in CHAT.decode(episode.ids)


def test_a_policy_that_only_makes_invalid_calls_is_stopped_for_that():
    """S53."""
    episode = run(ScriptedPolicy(*["<|calculator|><|end|>"] * 9, context_length=500), sampling=SamplingConfig(max_turns=9))
    assert (episode.status, episode.error) == (Status.TRUNCATED_TURNS, "3 invalid calls in a row")
    assert len(episode.turns) == 3


@pytest.mark.parametrize(
    ("where", "trouble", "status", "error"),
    [
        ("reset", OSError("no image"), Status.ENVIRONMENT_ERROR, "the environment's reset raised OSError: no image"),
        ("step", OSError("gone"), Status.ENVIRONMENT_ERROR, "the environment's step raised OSError: gone"),
        ("score", OSError("gone"), Status.ENVIRONMENT_ERROR, "the environment's score raised OSError: gone"),
        ("step", BrokenToolError("down"), Status.TOOL_ERROR, "the environment's step raised BrokenToolError: down"),
        (
            "step",
            asyncio.CancelledError(),
            Status.ENVIRONMENT_ERROR,
            "the environment's step was cancelled, though nobody asked for it",
        ),
        ("reset", "hang", Status.TIMED_OUT, "the environment's reset took over 0.01 s"),
        ("step", "hang", Status.TIMED_OUT, "the environment's step took over 0.01 s"),
        ("score", "hang", Status.TIMED_OUT, "the environment's score took over 0.01 s"),
    ],
)
def test_trouble_of_the_environment_is_a_failed_episode_with_its_own_status(where, trouble, status, error):
    """S7, S9, S27, S31, S33."""
    limits = TimeLimits(reset_s=0.01, step_s=0.01, score_s=0.01)
    episode = failed(ScriptedPolicy(CALL, ANSWER), env=lambda: Watched(**{where: trouble}), limits=limits)
    assert (episode.status, episode.error) == (status, error)
    assert episode.reward is None
    assert episode.num_sampled == {"reset": 0, "step": 5, "score": 7}[where]


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ([CALL, ConnectionError("lost")], Status.MODEL_ERROR, "the model raised ConnectionError: lost"),
        ([CALL, asyncio.CancelledError()], Status.MODEL_ERROR, "the model was cancelled, though nobody asked for it"),
        ([CALL, None], Status.TIMED_OUT, "the model took over 0.01 s"),
    ],
)
def test_trouble_of_the_model_is_a_failed_episode_that_keeps_what_was_sampled(script, status, error):
    """S9, S33."""
    episode = failed(ScriptedPolicy(*script), limits=TimeLimits(model_s=0.01, abort_s=0.01))
    assert (episode.status, episode.error, episode.num_sampled) == (status, error, 5)


@pytest.mark.parametrize(("said", "reasons"), [("2*", ["stop", "aborted"]), ("", ["stop"])])
def test_a_turn_that_takes_too_long_is_aborted_and_what_it_had_come_to_is_kept(said, reasons):
    """S33, S90: tokens, log-probabilities and versions of one length; also where there is nothing yet."""
    policy = ScriptedPolicy(CALL, Unfinished(said))
    episode = failed(policy, limits=TimeLimits(model_s=0.01))
    assert policy.aborts == policy.released
    assert (episode.status, episode.error) == (Status.TIMED_OUT, "the model took over 0.01 s")
    assert CHAT.decode(episode.ids[episode.mask]) == CALL + said
    assert np.isfinite(episode.logprobs[episode.mask]).all()
    assert (episode.versions[episode.mask] == 3).all()
    assert [turn.stop_reason for turn in episode.turns] == reasons


def test_a_turn_that_was_aborted_from_outside_is_no_timeout():
    """S33, S90."""
    policy = ScriptedPolicy(Unfinished("2*"))
    policy.aborted.set()
    episode = failed(policy, limits=TimeLimits(model_s=60))
    assert (episode.status, episode.error) == (Status.CANCELLED, "the model's turn was aborted")
    assert CHAT.decode(episode.ids[episode.mask]) == "2*"


def test_a_turn_in_time_is_not_aborted_later():
    policy = ScriptedPolicy(CALL, ANSWER)

    async def wait_after(episode):
        outcome = await episode
        await asyncio.sleep(0.03)
        return outcome

    stage = episodes(policy, limits=TimeLimits(model_s=0.02))
    assert asyncio.run(wait_after(stage(TASK, context()))).status is Status.FINISHED
    assert policy.aborts == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"logprobs": np.array([-0.1, np.nan], np.float32)}, "expected finite log-probabilities, got nan at token 1"),
        ({"logprobs": np.array([-np.inf, -1], np.float32)}, "expected finite log-probabilities, got -inf at token 0"),
        ({"logprobs": np.array([-0.1], np.float32)}, "expected arrays of one length, got 2, 1 and 2"),
        ({"versions": np.array([0, -1], np.int32)}, "expected versions from 0, got -1"),
        ({"ids": encode("66")}, "expected a turn that stopped to end with one of (6,), got 14"),
    ],
)
def test_a_sample_that_cannot_be_trained_on_is_refused_with_the_reason(change, problem):
    """S88."""
    good = {"ids": encode(ANSWER), "logprobs": np.full(2, -0.1, np.float32), "versions": np.zeros(2, np.int32)}
    episode = failed(ScriptedPolicy(Sample(**(good | change), stop_reason="stop")))
    assert (episode.status, episode.error) == (Status.MODEL_ERROR, f"the model's sample: {problem}")


def test_a_turn_that_stopped_on_a_string_is_no_fault_where_strings_were_asked_for():
    """S35: truncation follows the policy's word, so the episode is finished."""
    sample = Sample(encode("6="), np.full(2, -0.1, np.float32), np.zeros(2, np.int32), "stop")
    assert (
        failed(ScriptedPolicy(sample)).error
        == "the model's sample: expected a turn that stopped to end with one of (6,), got 52"
    )
    episode = run(ScriptedPolicy(sample), sampling=SamplingConfig(stop_strings=("=",)))
    assert (episode.status, episode.turns[0].stop_reason, episode.messages[-1].content) == (Status.FINISHED, "stop", "6=")


def test_what_an_agent_may_draw_from_reaches_the_policy():
    policy = ScriptedPolicy(ANSWER)
    wanted = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.05, "stop_strings": ("a", "bc")}
    run(policy, sampling=SamplingConfig(**wanted))
    assert {name: getattr(policy.requests[0], name) for name in wanted} == wanted


def test_a_limit_on_the_conversation_is_a_timeout_and_no_cancellation():
    """S33."""
    episode = failed(ScriptedPolicy(CALL, None), limits=TimeLimits(episode_s=0.05, abort_s=0.01))
    assert (episode.status, episode.error) == (Status.TIMED_OUT, "the conversation took over 0.05 s")
    assert episode.num_sampled == 5


@pytest.mark.parametrize("said", ["2*", ""])
def test_a_limit_on_the_conversation_aborts_the_turn_and_keeps_what_there_is(said):
    """S33, S90: as by a limit on the turn, of which there is none here."""
    policy = ScriptedPolicy(CALL, Unfinished(said))
    episode = failed(policy, limits=TimeLimits(episode_s=0.05))
    assert len(policy.aborts) == 1
    assert (episode.status, episode.error) == (Status.TIMED_OUT, "the conversation took over 0.05 s")
    assert CHAT.decode(episode.ids[episode.mask]) == CALL + said


def test_a_limit_on_the_conversation_cuts_a_step_of_the_environment_too():
    """S33."""
    episode = failed(ScriptedPolicy(CALL), env=lambda: Watched(step="hang"), limits=TimeLimits(episode_s=0.05))
    assert (episode.status, episode.error) == (Status.TIMED_OUT, "the conversation took over 0.05 s")


def test_what_an_agent_awaits_besides_is_cut_when_the_grace_is_over():
    class Dreams(CustomAgent):
        async def converse(self, talk):
            talk.open()
            await anyio.sleep_forever()

    episode = failed(ScriptedPolicy(), agent=Dreams(), limits=TimeLimits(episode_s=0.02, abort_s=0.01))
    assert (episode.status, episode.error) == (Status.TIMED_OUT, "the conversation took over 0.02 s")


def test_making_an_environment_has_a_limit_of_its_own():
    """S28, S33: plain and slow, or async and hanging; what is made late is closed."""
    closed = []

    class Late(Watched):
        async def close(self):
            closed.append(self)

    def slow(task):
        time.sleep(0.05)
        return Late()

    async def hang(task):
        await anyio.sleep_forever()

    for make in (slow, hang):
        stage = Episodes(ScriptedPolicy(), CHAT, ToolAgent(), make, SamplingConfig(), TimeLimits(setup_s=0.01))
        outcome = asyncio.run(stage(TASK, context()))
        assert (outcome.reason, outcome.detail) == (Status.TIMED_OUT, "making the environment took over 0.01 s")
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("junk", "error"),
    [
        (None, "the environment's step: expected a Reply, got NoneType"),
        (Reply(), "the environment's step: expected one tool message for each of the calls ['call-0-0'], got answers to []"),
        (Reply((Message("tool", "6", call_id="other"),), Status.FINISHED), "the environment's step: expected at most one tool "
         "message for each of the calls ['call-0-0'], got answers to ['other']"),
        (Reply(end=Status.TIMED_OUT), "the environment's step: expected an end of Status.FINISHED, Status.TRUNCATED_TURNS or "
         "None, got <Status.TIMED_OUT: 'timed_out'>"),
    ],
)  # fmt: skip
def test_junk_of_the_environment_is_its_error(junk, error):
    class Junk(Watched):
        async def step(self, message):
            return junk

    episode = failed(ScriptedPolicy(CALL), env=Junk)
    assert (episode.status, episode.error) == (Status.ENVIRONMENT_ERROR, error)


@pytest.mark.parametrize(
    ("where", "junk"),
    [
        ("reset", Opening((Message("user", "go"),), None)),
        ("reset", Opening((Message("user", "go"),), (5,))),
        ("step", Reply((), "finished")),
        ("step", Reply(message for message in ())),
        ("step", Reply((), Status.TRUNCATED_TURNS, 5)),
        ("score", {"a": np.array([1.0, 2.0])}),
        ("score", {"a": 10**400}),
        ("score", {"a": Decimal("sNaN")}),
    ],
)
def test_an_answer_that_cannot_even_be_judged_is_the_environments_error(where, junk):
    """S7: one bad answer takes down no other episode."""

    async def answer(*args):
        return junk

    def make():
        env = Watched()
        setattr(env, where, answer)
        return env

    episode = failed(ScriptedPolicy(CALL, ANSWER), env=make)
    assert episode.status == Status.ENVIRONMENT_ERROR
    assert episode.error.startswith(f"the environment's {where}: expected")


def test_a_call_where_no_tool_is_shown_is_answered_and_the_episode_goes_on():
    """S44: the environment knows nothing of calls."""

    class Bare(Watched):
        async def step(self, message):
            return Reply((Message("user", "7"),)) if message.calls else Reply((), Status.FINISHED)

    episode = run(ScriptedPolicy(CALL, ANSWER), env=lambda: Bare(()))
    assert episode.status == Status.FINISHED
    assert [(message.role, message.call_id) for message in episode.messages[2:4]] == [("tool", "call-0-0"), ("user", None)]


def test_the_last_observation_of_an_episode_that_the_environment_cut_is_kept():
    """S42: in the record and in the policy's view, untrained; terminated and truncated are apart."""

    class Cuts(Watched):
        async def step(self, message):
            return Reply((Message("tool", "5", call_id=message.calls[0].id),), self.trouble["end"], "night falls")

    cut = run(ScriptedPolicy(CALL), env=lambda: Cuts(end=Status.TRUNCATED_TURNS))
    assert (cut.status.rule.end, cut.error, cut.messages[-1].content) == ("truncated", "night falls", "5")
    assert CHAT.decode(cut.ids).endswith(f"{CALL}<|tool|>5<|assistant|>")
    assert CHAT.decode(cut.ids[cut.mask]) == CALL
    over = run(ScriptedPolicy(CALL), env=lambda: Cuts(end=Status.FINISHED))
    assert (over.status.rule.end, over.messages[-1].content) == ("terminated", "5")
    assert CHAT.decode(over.ids).endswith(CALL)
    full = run(ScriptedPolicy(CALL, context_length=12), env=lambda: Cuts(end=Status.TRUNCATED_TURNS))
    assert (full.status.rule.end, len(full.ids), full.messages[-1].content) == ("truncated", 11, "5")


@pytest.mark.parametrize(
    ("wanted", "status"), [("end", Status.TRUNCATED_TURNS), ("answer", Status.FINISHED), (None, Status.FINISHED)]
)
def test_a_task_says_what_comes_of_an_invalid_call(wanted, status):
    stage = episodes(ScriptedPolicy("<|calculator|><|end|>", ANSWER))
    episode = asyncio.run(stage(Task("t", "2*3", "6", extra={} if wanted is None else {"on_invalid": wanted}), context()))
    assert episode.status is status


def test_a_task_that_wants_something_else_of_an_invalid_call_is_told():
    outcome = asyncio.run(episodes(ScriptedPolicy())(Task("t", "2*3", extra={"on_invalid": "stop"}), context()))
    assert outcome.detail == "the environment's reset: expected on_invalid to be answer, end or None, got 'stop'"


def test_the_stage_closes_what_is_idle_in_a_pool_when_its_run_is_over():
    """S31."""

    async def make(task):
        return Watched()

    async def main():
        Watched.made = ()
        async with Episodes(ScriptedPolicy(*[ANSWER] * 3), CHAT, ToolAgent(), EnvPool(make, 2), SamplingConfig()) as stage:
            for _ in range(3):
                await stage(TASK, context())
            assert [env.closed for env in Watched.made] == [0]
        assert [env.closed for env in Watched.made] == [1]

    asyncio.run(main())


def test_a_real_cancellation_goes_on_and_everything_is_released():
    """S9, S28: cancelled natively at every point where an episode waits."""

    async def cancel_after(steps):
        policy = ScriptedPolicy(CALL, ANSWER)
        task = asyncio.create_task(episodes(policy)(TASK, context()))
        for _ in range(steps):
            await asyncio.sleep(0)
        done = task.done()
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        assert all(env.closed == 1 for env in Watched.made)
        assert len(policy.released) == (steps > 0)
        assert len(asyncio.all_tasks()) == 1
        assert done or isinstance(outcome, asyncio.CancelledError)
        return done

    steps = 0
    while not asyncio.run(cancel_after(steps)):
        steps += 1
    assert steps > 10


def test_a_second_cancellation_does_not_cut_the_closing_short():
    """S28, S30."""

    class Slow(Watched):
        finished = 0

        async def close(self):
            for _ in range(5):
                await asyncio.sleep(0)
            Slow.finished += 1

    async def cancel_natively_at_every_step():
        task = asyncio.create_task(episodes(ScriptedPolicy(None), env=Slow)(TASK, context()))
        for _ in range(5):
            await asyncio.sleep(0)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()

    async def cancel_by_scope():
        with anyio.move_on_after(0.01) as scope:
            await episodes(ScriptedPolicy(None), env=Slow)(TASK, context())
        assert scope.cancelled_caught

    asyncio.run(cancel_natively_at_every_step())
    assert Slow.finished == 1
    asyncio.run(cancel_by_scope())
    assert Slow.finished == 2


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (OSError("still busy"), "closing the environment raised OSError: still busy"),
        (asyncio.CancelledError(), "closing the environment was cancelled, though nobody asked for it"),
        ("hang", "closing the environment took over 0.01 s"),
    ],
)
def test_trouble_in_closing_is_told_and_changes_nothing_else(trouble, error):
    """S30."""
    episode = run(ScriptedPolicy(ANSWER), env=lambda: Watched(close=trouble), limits=TimeLimits(close_s=0.01))
    assert (episode.status, episode.error) == (Status.FINISHED, error)
    assert [env.closed for env in Watched.made] == [1]


def test_an_environment_that_cannot_be_made_is_a_failed_episode():
    """S32: nothing was made, so nothing is closed, and nothing leaks."""

    def refuse():
        raise OSError("no more")

    policy = ScriptedPolicy()
    outcome = run(policy, env=refuse)
    assert (outcome.value.status, outcome.value.error) == (
        Status.ENVIRONMENT_ERROR,
        "making the environment raised OSError: no more",
    )
    assert len(outcome.value.ids) == 0
    assert policy.released == ["episodes/4.1/2/5"]


def test_a_mistake_in_an_agent_is_raised_and_the_environment_is_still_closed():
    class Wrong:
        async def run(self, setting, transcript):
            raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        run(ScriptedPolicy(), agent=Wrong())
    assert [env.closed for env in Watched.made] == [1]


@pytest.mark.slow
def test_five_hundred_episodes_at_once_lose_only_the_one_that_fails():
    """S7."""

    async def many():
        def stage(n):
            return episodes(ScriptedPolicy(CALL, OSError("bad") if n == 321 else ANSWER))

        return await asyncio.gather(*(stage(n)(TASK, context()) for n in range(500)))

    outcomes = asyncio.run(many())
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Failed)] == [321]


def test_prompts_that_cannot_be_used_are_told_by_id_all_at_once():
    tasks = [Task("short", "1+1"), Task("long", "1" * 40), Task("odd", "1€"), *(Task(f"l{i}", "1" * 50) for i in range(12))]
    with pytest.raises(PromptError) as refused:
        check_tasks(tasks, CHAT, [CALCULATOR], context_length=40, min_room=8)
    text = str(refused.value)
    assert text.startswith("expected prompts of at most 32 tokens (context 40, room for 8); got 14 that cannot be used")
    assert "\n  long: 43 tokens\n  odd: expected characters among" in text
    assert "\n  and 4 more\n" in text
    check_tasks(tasks[:1], CHAT, [CALCULATOR], context_length=40)
