"""Which server a request goes to: the one with the prefix of its episode, while it may work; else the one with least to do."""

import asyncio
from collections import Counter

import anyio

from stages.policy import PolicyEnded
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.dialects.dialect import Dialect
from stages.rollout.http.server import Server


class Fleet:
    """The servers of one engine.

    Args:
        config: see ``HttpConfig``.
        dialect: what they are.
    """

    def __init__(self, config: HttpConfig, dialect: Dialect) -> None:
        self._config = config
        self._news = asyncio.Event()
        self._home: dict[str, Server] = {}
        self._episodes: Counter[str] = Counter()
        self.servers = tuple(Server(url.rstrip("/"), config, dialect, self._tell) for url in config.urls)

    async def choose(self, session: str) -> Server:
        """The server for a session's next request; waits while none may work.

        Raises:
            PolicyEnded: none could work for too long.
        """
        since_s, down_s = anyio.current_time(), self._config.down_s
        while (server := self._pick(session)) is None:
            self._news.clear()
            with anyio.move_on_after(max(since_s + down_s - anyio.current_time(), 0.0)):
                await self._news.wait()
            if any(each.state == "loading" for each in self.servers):
                since_s = anyio.current_time()
            elif anyio.current_time() >= since_s + down_s:
                raise PolicyEnded(
                    f"expected a server that may work; got none for {down_s:g} s: {self.told()}; in servers.urls; start one, "
                    "or look at what it says"
                )
        return server

    def told(self) -> str:
        """How each server is, in a line."""
        return "; ".join(f"{each.url} is {each.state}: {each.reason}" for each in self.servers)

    def home(self, session: str) -> Server | None:
        """The server that holds what the session has cached; ``None`` for a session without any."""
        return self._home.get(session)

    def forget(self, session: str) -> Server | None:
        """The session is over; gives the server that it was at."""
        server = self._home.pop(session, None)
        if server is not None:
            self._episodes[server.url] -= 1
        return server

    def _pick(self, session: str) -> Server | None:
        held = self._home.get(session)
        if held is not None and held.state in ("ready", "loading"):
            # To wait for it, too: else all that are on their way would move to whichever server has its weights first.
            return held if held.state == "ready" else None
        ready = [server for server in self.servers if server.state == "ready"]
        if not ready:
            return None
        # An episode that waits for a tool will come back, so it counts where nothing is under way.
        server = min(ready, key=lambda each: (each.under_way, self._episodes[each.url]))
        self.forget(session)
        self._home[session] = server
        self._episodes[server.url] += 1
        return server

    def _tell(self) -> None:
        self._news.set()
