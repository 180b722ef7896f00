"""The episode stage: one task in, one episode out, whatever happens on the way.

It owns the life of an episode: it makes the environment and closes it exactly once, releases the policy's cache, keeps the
time limits, and turns every failure of the model, the environment or a tool into an episode with the right status. The
conversation itself is the agent's. Mistakes in our own or an agent's code are not failures of an episode: they are raised.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import anyio

from flow import Context, Failed
from stages.agents.agent import Agent, Ending, Setting
from stages.agents.guards import (
    ConversationClock,
    EpisodeError,
    GuardedEnvironment,
    GuardedPolicy,
    TimeLimits,
    guarded,
    limit,
)
from stages.agents.part_clock import PartClock
from stages.agents.sampling import SamplingConfig
from stages.cancellation import cancel_requested, to_the_end
from stages.envs.blanked_env import BlankedEnv
from stages.envs.environment import Environment, opening_messages
from stages.envs.housed import Housed, MakeEnv
from stages.envs.pool import EnvPool
from stages.exits import exits_as_errors
from stages.policy import Policy
from stages.records import Episode, Message, Status, Task
from stages.text.chat import Chat, ToolSpec, reply_counter
from stages.text.transcript import Transcript
from stages.tools.context import key_of, permit_of, set_tool_context, tool_context
from stages.tools.credentials import Uses, blanked, blanked_errors, uses_into


class Episodes:
    """Stage: runs one episode for each task."""

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        agent: Agent,
        make_env: MakeEnv | EnvPool,
        sampling: SamplingConfig,
        limits: TimeLimits | None = None,
        pool: str | None = None,
        cycle: int | None = None,
    ):
        """Put the parts together.

        Args:
            policy: samples turns.
            chat: the format of conversations.
            agent: holds them; one object for all episodes.
            make_env: makes the environment of one episode, a plain function in a thread; or a pool to take it from.
            sampling: temperature, budgets, seed.
            limits: time limits; ``None`` for the defaults.
            pool: pool of the graph of which each turn takes a unit while the policy is asked; ``None`` takes none, as for
                policies without a bound of their own.
            cycle: groups after which random keys begin again, for a set of tasks that is gone through several times and must
                come out the same over the same weights; ``None`` for never.
        """
        self._policy = policy
        self._chat = chat
        self._agent = agent
        self._envs = make_env if isinstance(make_env, EnvPool) else None
        self._make_env: MakeEnv = make_env.take if isinstance(make_env, EnvPool) else make_env
        self._sampling = sampling
        self._limits = limits or TimeLimits()
        self._turns = pool
        self._cycle = cycle

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._envs is not None:
            await to_the_end(self._envs.close())

    async def __call__(self, task: Task, context: Context) -> Episode | Failed[Episode]:
        """Run one episode.

        Returns:
            The episode; inside ``Failed`` where its status is a failure.

        Raises:
            asyncio.CancelledError: somebody cancelled this attempt; the environment is closed first.
            LookupError: the graph has no pool of the name, or none that a tool names.
        """
        # Around all of it: whoever uses a credential on the way, no word of the episode gives it away.
        with uses_into(Uses({})), blanked_errors():
            return await self._episode(task, context)

    async def _episode(self, task: Task, context: Context) -> Episode | Failed[Episode]:
        started = anyio.current_time()
        count_tokens = reply_counter(self._chat)
        set_tool_context(
            permit=permit_of(context), count_tokens=count_tokens, attempt=context.attempt,
            key=key_of(context, tool_context().run),
        )  # fmt: skip
        transcript = Transcript()
        session = f"{context.node}/{'.'.join(map(str, context.path))}/{context.retry}/{context.attempt}"
        housed, part_clock = Housed(self._make_env), PartClock(context)
        unclosed: str | None = None
        try:
            with part_clock.part("setup"):
                allowed = limit("making the environment", self._limits.setup_s)
                env = BlankedEnv(await guarded(housed.open(task), Status.ENVIRONMENT_ERROR, "making the environment", allowed))
            status, reason, parts = await self._run(task, context, env, transcript, session, part_clock)
        except EpisodeError as fault:
            status, reason, parts = fault.status, fault.reason, None
        finally:
            try:
                self._policy.release(session)
            finally:
                with part_clock.part("close"):
                    unclosed = await to_the_end(_close(housed, self._limits.close_s))
        episode = Episode(
            task=task,
            birth=context.birth,
            member=context.member,
            retry=context.retry,
            ids=transcript.ids(),
            mask=transcript.mask(),
            logprobs=transcript.logprobs(),
            versions=transcript.versions(),
            turns=transcript.all_turns(),
            messages=tuple(transcript.messages),
            status=status,
            error="; ".join(line for line in (reason, unclosed) if line) or None,
            parts=parts or {},
            seconds=anyio.current_time() - started,
            rows=transcript.rows(),
            timings=part_clock.timings,
        )
        return episode if status.rule.completes else Failed(episode, status.value, episode.error or "")

    async def _run(
        self, task: Task, context: Context, env: Environment, transcript: Transcript, session: str, part_clock: PartClock
    ) -> tuple[Status, str | None, dict[str, float] | None]:
        guarded_env = GuardedEnvironment(env, self._limits, context, part_clock)
        birth = context.birth if self._cycle is None else context.birth % self._cycle
        key = (self._sampling.seed or 0, birth, context.member, context.retry)
        opening = await guarded_env.reset(task, key)
        clock = guarded_env.clock = ConversationClock(self._limits)
        policy = GuardedPolicy(self._policy, self._limits, context, clock, self._turns)
        setting = Setting(policy, self._chat, guarded_env, opening, self._sampling, key, session)
        ending: Ending | None = None
        # Turns and steps end by the clock, in order; this is for whatever else an agent may await.
        most_s = self._limits.episode_s
        with exits_as_errors(), anyio.move_on_after(None if most_s is None else most_s + self._limits.abort_s):
            ending = await self._agent.run(setting, transcript)
        if ending is None:
            raise EpisodeError(Status.TIMED_OUT, limit("the conversation", most_s).late)
        return ending.status, ending.reason, await guarded_env.score()


async def _close(env: Housed, limit_s: float) -> str | None:
    """Close once. A failure does not change what the episode was; it is told in the record."""
    try:
        with exits_as_errors(), anyio.fail_after(limit_s):
            await env.close()
    except asyncio.CancelledError:
        if cancel_requested():
            raise
        return "closing the environment was cancelled, though nobody asked for it"
    except TimeoutError:
        return f"closing the environment took over {limit_s:g} s"
    except Exception as error:
        return f"closing the environment raised {type(error).__name__}: {blanked(str(error))}"
    return None


class PromptError(ValueError):
    """Tasks whose prompt cannot be used."""


def check_tasks(
    tasks: Iterable[Task],
    chat: Chat,
    tools: Sequence[ToolSpec],
    context_length: int,
    *,
    opening: Callable[[Task], Sequence[Message]] = opening_messages,
    min_room: int = 1,
) -> None:
    """Refuse, before anything runs, tasks whose prompt cannot be written or leaves no room for an answer.

    Args:
        tasks: all of them are written once.
        chat: the format of conversations.
        tools: the tools the environment will show.
        context_length: of the policy, in tokens.
        opening: the messages the environment will open with.
        min_room: tokens that must be left for what the policy says.

    Raises:
        PromptError: names every offender by its id (the first ten) and their number.
    """
    offenders = []
    for task in tasks:
        try:
            length = len(chat.open(opening(task), tools))
        except ValueError as error:
            offenders.append(f"{task.id}: {error}")
            continue
        if length + min_room > context_length:
            offenders.append(f"{task.id}: {length} tokens")
    if offenders:
        shown = "\n  ".join(offenders[:10])
        more = f"\n  and {len(offenders) - 10} more" if len(offenders) > 10 else ""
        raise PromptError(
            f"expected prompts of at most {context_length - min_room} tokens (context {context_length}, room for {min_room}); "
            f"got {len(offenders)} that cannot be used, in the tasks:\n  {shown}{more}\n"
            "shorten or remove them, or raise the context length"
        )
