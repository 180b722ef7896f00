"""Pause, resume, abort and new weights of a server: what a trainer does with it, in the words of vLLM's endpoints.

New weights take three steps: pause, ``/collective_rpc`` with ``reload_weights``, ``/update_weight_version``. The second reads
and checks them and puts nothing in force; the third does, whole, under the version it names. Until then ``/resume`` is refused.
So no token is ever sampled from weights of another version than the one that is told of it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from flax import nnx

from graphs.serving.desk import Desk
from graphs.serving.errors import Refused
from stages.models.huggingface import describe_huggingface, fill_from_huggingface
from stages.models.transformer import Transformer
from stages.records import Weights
from stages.rollout.engine import Engine

Mode = Literal["abort", "wait", "keep"]
MODES = ("abort", "wait", "keep")
Read = Callable[[Path], Any]


class Control:
    """Of one server; on the event loop.

    Args:
        engine: open.
        model: that the engine samples from.
        desk: of the server.
        folder: below which weights are read; ``None`` reads none.
    """

    def __init__(self, engine: Engine, model: Transformer, desk: Desk, folder: Path | None) -> None:
        self._engine, self._model, self._desk = engine, model, desk
        self._folder = None if folder is None else folder.resolve()
        self._open = asyncio.Event()
        self._open.set()
        self._staged: Any = None
        self._one_at_a_time = asyncio.Lock()
        self.is_paused = False

    async def gate(self) -> None:
        """Wait while a pause lets nobody in."""
        await self._open.wait()

    async def pause(self, mode: Mode) -> None:
        """Stop sampling.

        Args:
            mode: what becomes of requests under way: ``abort`` ends them with what there is, ``wait`` lets them end, ``keep``
                leaves them where they are. Those that come later wait.
        """
        async with self._one_at_a_time:
            if mode == "wait":
                self._open.clear()
                await self._desk.wait_quiet()
            elif mode == "abort":
                self._open.clear()
                self.abort(None)
            self._engine.pause()
            self.is_paused = True

    async def resume(self) -> None:
        """Go on.

        Raises:
            Refused: weights were read and have no version yet.
        """
        async with self._one_at_a_time:
            if self._staged is not None:
                raise Refused(
                    409, "expected the version of the weights that were read; got none, in /resume; "
                    "post it to /update_weight_version first", "conflict_error",
                )  # fmt: skip
            self._engine.resume()
            self._open.set()
            self.is_paused = False

    def abort(self, names: list[str] | None) -> int:
        """End requests with what there is.

        Args:
            names: of them; ``None`` for all.

        Returns:
            How many were under way.
        """
        found = self._desk.sessions_of(names)
        for _, sessions in found:
            for session in sessions:
                self._engine.abort(session)
        return len(found)

    async def read(self, path: str) -> None:
        """Read weights and keep them until their version is known.

        Raises:
            Refused: the server is not paused, the path is outside, or what is there does not fit the model; what was read
                before is dropped, what is in force stays.
        """
        async with self._one_at_a_time:
            self._staged = None
            if not self.is_paused:
                raise Refused(409, "expected a paused server; got one that samples; post to /pause first", "conflict_error")
            folder = self._inside(path)
            try:
                self._staged = await asyncio.to_thread(_read, self._model, folder)
            except (ValueError, OSError) as error:
                raise Refused(400, f"{error}; the weights in force stay") from error

    async def name_version(self, told: str) -> None:
        """Put what was read in force under a version.

        A lower version than the one in force begins a new line, as of a training that was gone on with.

        Raises:
            Refused: no version, nothing was read, or the engine could not take it; what is in force stays.
        """
        async with self._one_at_a_time:
            version, in_force = _version(told), self.version
            if self._staged is None:
                if version == in_force:
                    return
                raise Refused(
                    409, f"expected weights that were read for version {version}; got none; version {in_force} is in force; "
                    "post to /collective_rpc first", "conflict_error",
                )  # fmt: skip
            staged, self._staged = self._staged, None
            try:
                if version < in_force:
                    await self._engine.load(Weights(staged), 0)
                await self._engine.load(Weights(staged), version)
            except (ValueError, RuntimeError) as error:
                raise Refused(500, str(error), "server_error") from error

    @property
    def version(self) -> int:
        """Version in force."""
        return self._engine.statistics().version

    def _inside(self, path: str) -> Path:
        if self._folder is None:
            raise Refused(403, "expected a server that reads weights; got one without --weights; start it with a folder")
        # Resolved first: what lies behind links and dots is what would be read.
        folder = Path(path).resolve()
        if not folder.is_relative_to(self._folder) or folder == self._folder:
            raise Refused(
                403,
                f"expected a path inside the folder of --weights; got {path!r}; write the weights there",
                "permission_error",
            )
        return folder


def _read(model: Transformer, folder: Path) -> Any:
    """Parameters of a folder in the layout of a model."""
    found = describe_huggingface(folder, model.config.dtype)
    wanted = nnx.state(model, nnx.Param)
    shapes = nnx.state(found, nnx.Param)
    ours, theirs = nnx.to_flat_state(wanted), nnx.to_flat_state(shapes)
    if [(path, leaf.shape) for path, leaf in ours] != [(path, leaf.shape) for path, leaf in theirs]:
        raise ValueError(f"expected the shapes of the served model; got others, in {folder}; give weights of the same model")
    # The served model's settings count, which a configuration need not say in full.
    graph, _ = nnx.split(model)
    filled = nnx.merge(graph, shapes)
    fill_from_huggingface(filled, folder)
    return nnx.state(filled, nnx.Param)


def _version(told: str) -> int:
    if not told.isascii() or not told.isdigit() or int(told) >= 2**31:
        raise Refused(400, f"expected a version as a number from 0; got {told!r}, in new_version; count versions from 0 on")
    return int(told)
