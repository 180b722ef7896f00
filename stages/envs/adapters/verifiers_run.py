"""One rollout of the ``verifiers`` package, turned inside out: its model is whoever answers here.

Not an environment: ``verifiers_env.py`` is. In ``verifiers`` a harness calls a model over HTTP, and all else follows from these
calls: tools, stop conditions, limits, scores. So the harness is the plainest there is and runs in this process, and the
model is a server with one route whose requests wait for ``answer``. The rollout keeps its own life from set-up to scoring.

Source: verifiers 0.4, ``verifiers.v1``; the contract of ``Harness.launch`` and the chat-completions wire.
"""

import asyncio
import contextlib
import functools
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.packages import optional_package


def verifiers_module(name: str = "verifiers.v1") -> Any:
    """A module of the package.

    Raises:
        MissingPackageError: it is not installed.
    """
    return optional_package(name, "verifiers", "VerifiersEnv")


class VerifiersRun:
    """A rollout on its way. It has a thread and a loop of its own: rewards and hooks of a task may hold a loop up, and do.

    Args:
        task: a ``verifiers`` task.
        max_turns: most turns of the model; ``None`` for no limit.
    """

    def __init__(self, task: Any, max_turns: int | None) -> None:
        self._task, self._max_turns = task, max_turns
        self._requests: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = asyncio.Queue()
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._ended: asyncio.Future[Any] | None = None
        self._life: asyncio.Task[Any] | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin; the rollout goes on by itself up to its first request."""
        self._outside = asyncio.get_running_loop()
        self._ended = self._outside.create_future()
        threading.Thread(target=self._live, name="verifiers rollout", daemon=True).start()

    async def request(self) -> dict[str, Any] | None:
        """The next request to the model, a chat-completions body; ``None`` once the rollout is over and scored."""
        assert self._ended is not None
        asked = asyncio.ensure_future(self._requests.get())
        try:
            await asyncio.wait([asked, self._ended], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return None
            body, self._answer = asked.result()
            return body
        finally:
            asked.cancel()

    @property
    def waits(self) -> bool:
        """Whether a request was taken and not answered."""
        return self._answer is not None

    def answer(self, message: Mapping[str, Any], finish_reason: str) -> None:
        """Answer the request that was taken last with an assistant message of the chat-completions wire."""
        assert self._answer is not None
        choice = {"index": 0, "message": dict(message), "finish_reason": finish_reason}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        reply = {
            "id": "turn",
            "object": "chat.completion",
            "created": 0,
            "model": "policy",
            "choices": [choice],
            "usage": usage,
        }
        answer, self._answer = self._answer, None
        # A rollout that ended meanwhile, by a time limit of its own, waits for no answer, and its loop may be closed.
        with contextlib.suppress(RuntimeError):
            answer.get_loop().call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(reply))

    def trace(self) -> Any:
        """What the rollout recorded, scores included, once ``request`` gave ``None``. Raises what the rollout raised."""
        assert self._ended is not None
        return self._ended.result()

    async def stop(self) -> None:
        """End it wherever it is, and wait until its servers are closed."""
        self._stopping = True
        life = self._life
        if life is not None:
            with contextlib.suppress(RuntimeError):
                life.get_loop().call_soon_threadsafe(life.cancel)
        if self._ended is not None:
            await asyncio.wait([self._ended])
            if not self._ended.cancelled():
                self._ended.exception()

    def _live(self) -> None:
        """The thread."""
        ended = self._ended
        assert ended is not None
        try:
            trace = asyncio.run(self._run())
        except asyncio.CancelledError:
            end: Callable[[], object] = ended.cancel
        except BaseException as error:
            end = functools.partial(ended.set_exception, error)
        else:
            end = functools.partial(ended.set_result, trace)
        with contextlib.suppress(RuntimeError):  # the loop outside is closed, and nobody waits
            self._outside.call_soon_threadsafe(lambda: None if ended.done() else end())

    async def _run(self) -> Any:
        self._life = asyncio.current_task()
        if self._stopping:
            raise asyncio.CancelledError
        vf, web = verifiers_module(), optional_package("aiohttp.web", "verifiers", "VerifiersEnv")
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", functools.partial(self._completion, web))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            listening = socket.create_server(("127.0.0.1", 0))
            await web.SockSite(runner, listening).start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            config = vf.AgentConfig(
                model="policy",
                harness=vf.HarnessConfig(id="null"),
                runtime=vf.SubprocessConfig(),
                client=vf.EvalClientConfig(base_url=url, api_key_var="UNSET"),
                max_turns=self._max_turns,
                retries=vf.RetryConfig(max_retries=0),
            )
            agent = vf.make_agent(config)
            agent.harness = _harness_class()(config.harness)
            async with agent:
                return await agent.run(self._task)
        finally:
            await runner.cleanup()

    async def _completion(self, web: Any, request: Any) -> Any:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        asked = (await request.json(), answer)
        self._outside.call_soon_threadsafe(self._requests.put_nowait, asked)
        return web.json_response(await answer)


@functools.cache
def _harness_class() -> type[Any]:
    """The harness: asks the model, calls the tools it names, until a turn calls none. Made here, since its base is optional."""
    vf = verifiers_module()
    openai = optional_package("openai", "verifiers", "VerifiersEnv")

    class Plain(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc,name-defined]
        APPENDS_SYSTEM_PROMPT = SUPPORTS_MCP = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(
            self,
            ctx: Any,
            trace: Any,
            runtime: Any,
            endpoint: str,
            secret: str,
            mcp_urls: dict[str, str],
            data: Any,
        ) -> Any:
            system, prompt = self.resolve_prompt(data)
            messages = [] if system is None else [{"role": "system", "content": system}]
            messages += _prompt_messages(prompt)
            try:
                async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None) as client:
                    await _converse(functools.partial(client.chat.completions.create, model=ctx.model), messages, mcp_urls)
            except openai.APIStatusError as error:
                # Limits and stop conditions come as refused requests; the rollout knows which of them this is.
                return vf.ProgramResult(exit_code=1, stdout="", stderr=str(error))
            return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    return Plain


async def _converse(ask: Callable[..., Any], messages: list[dict[str, Any]], mcp_urls: Mapping[str, str]) -> None:
    """Ask and call tools until a turn calls none; every message goes into ``messages``."""
    tools_of = verifiers_module("verifiers.v1.harnesses.utils.mcp")
    config = {"mcpServers": {name: {"url": url} for name, url in mcp_urls.items()}}
    async with contextlib.AsyncExitStack() as stack:
        shown, dispatch, servers = await tools_of.connect_mcp(config, stack)
        known = {"tools": shown} if shown else {}
        while True:
            message = (await ask(messages=messages, **known)).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                text = await _called(tools_of, servers, dispatch, call.function)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def _called(tools_of: Any, servers: Any, dispatch: Mapping[str, Any], function: Any) -> Any:
    if function.name not in dispatch:
        return f"error: expected one of {', '.join(dispatch)}, got {function.name[:40]}"
    return await tools_of.call_mcp(servers, dispatch, function.name, json.loads(function.arguments))


def _prompt_messages(prompt: str | Sequence[Any] | None) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [message.model_dump(exclude_none=True) for message in prompt or ()]
