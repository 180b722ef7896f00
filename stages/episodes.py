"""The episode stage: one task in, one episode out, whatever happens on the way.

It owns the life of an episode: it makes the environment and closes it exactly once, releases the policy's cache, keeps the
time limits, and turns every failure of the model, the environment or a tool into an episode with the right status. The
conversation itself is the agent's. Mistakes in our own or an agent's code are not failures of an episode: they are raised.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

import anyio

from flow import Context, Failed
from stages.agents.agent import Agent, Ending, Setting
from stages.agents.guards import EpisodeError, GuardedEnvironment, GuardedPolicy, TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.cancellation import cancel_requested, to_the_end
from stages.envs.environment import Environment, opening_messages
from stages.policy import Policy
from stages.records import Episode, Message, Status, Task
from stages.text.chat import Chat, ToolSpec
from stages.text.transcript import Transcript


class Episodes:
    """Stage: runs one episode for each task."""

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        agent: Agent,
        make_env: Callable[[Task], Environment],
        sampling: SamplingConfig,
        limits: TimeLimits | None = None,
        pool: str | None = None,
    ):
        """Put the parts together.

        Args:
            policy: samples turns.
            chat: the format of conversations.
            agent: holds them; one object for all episodes.
            make_env: makes the environment of one episode. Takes nothing that needs freeing: ``reset`` does that.
            sampling: temperature, budgets, seed.
            limits: time limits; ``None`` for the defaults.
            pool: pool of the graph of which each turn takes a unit while the policy is asked; ``None`` takes none, as for
                policies without a bound of their own.
        """
        self._policy = policy
        self._chat = chat
        self._agent = agent
        self._make_env = make_env
        self._sampling = sampling
        self._limits = limits or TimeLimits()
        self._pool = pool

    async def __call__(self, task: Task, context: Context) -> Episode | Failed[Episode]:
        """Run one episode.

        Returns:
            The episode; inside ``Failed`` where its status is a failure.

        Raises:
            asyncio.CancelledError: somebody cancelled this attempt; the environment is closed first.
            LookupError: the graph has no pool of the name.
        """
        started = anyio.current_time()
        transcript = Transcript()
        session = f"{context.node}/{'.'.join(map(str, context.path))}/{context.retry}/{context.attempt}"
        env: Environment | None = None
        unclosed: str | None = None
        try:
            env = _made(self._make_env, task)
            status, reason, parts = await self._run(task, context, env, transcript, session)
        except EpisodeError as fault:
            status, reason, parts = fault.status, fault.reason, None
        finally:
            try:
                self._policy.release(session)
            finally:
                if env is not None:
                    unclosed = await to_the_end(_close(env, self._limits.close_s))
        episode = Episode(
            task=task,
            birth=context.birth,
            member=context.member,
            retry=context.retry,
            ids=transcript.ids(),
            mask=transcript.mask(),
            logprobs=transcript.logprobs(),
            versions=transcript.versions(),
            turns=tuple(transcript.turns),
            messages=tuple(transcript.messages),
            status=status,
            error="; ".join(line for line in (reason, unclosed) if line) or None,
            parts=parts or {},
            seconds=anyio.current_time() - started,
        )
        return Failed(episode, status.value, episode.error or "") if status.failed else episode

    async def _run(
        self, task: Task, context: Context, env: Environment, transcript: Transcript, session: str
    ) -> tuple[Status, str | None, dict[str, float] | None]:
        guarded_env = GuardedEnvironment(env, self._limits, context)
        key = (self._sampling.seed, context.birth, context.member, context.retry)
        opening = await guarded_env.reset(task, key)
        policy = GuardedPolicy(self._policy, self._limits, context, self._pool)
        setting = Setting(policy, self._chat, guarded_env, opening, self._sampling, key, session)
        ending: Ending | None = None
        with anyio.move_on_after(self._limits.episode_s):
            ending = await self._agent.run(setting, transcript)
        if ending is None:
            raise EpisodeError(Status.TIMED_OUT, f"the conversation took over {self._limits.episode_s:g} s")
        parts = await guarded_env.score()
        unusable = [name for name, value in (parts or {}).items() if not math.isfinite(value)]
        if unusable:
            raise EpisodeError(Status.ENVIRONMENT_ERROR, f"the environment's score is not finite in {', '.join(unusable)}")
        return ending.status, ending.reason, parts


def _made(make_env: Callable[[Task], Environment], task: Task) -> Environment:
    try:
        return make_env(task)
    except Exception as error:
        raise EpisodeError(
            Status.ENVIRONMENT_ERROR, f"making the environment raised {type(error).__name__}: {error}"
        ) from error


async def _close(env: Environment, limit_s: float) -> str | None:
    """Close once. A failure does not change what the episode was; it is told in the record."""
    try:
        with anyio.fail_after(limit_s):
            await env.close()
    except asyncio.CancelledError:
        if cancel_requested():
            raise
        return "closing the environment was cancelled, though nobody asked for it"
    except TimeoutError:
        return f"closing the environment took over {limit_s:g} s"
    except Exception as error:
        return f"closing the environment raised {type(error).__name__}: {error}"
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
