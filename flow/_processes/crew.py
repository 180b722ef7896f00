"""The processes of one node: as many as it has workers, each with the stage, each replaced when it ends.

They are spawned, never forked, since the parent has threads. A process is started where the next call needs one, so none is
started for a node that is at its end.
"""

import asyncio
import pickle
from collections import deque
from collections.abc import Sequence
from typing import Any

from .._context import Context
from .._errors import NotPortable, WorkerDied
from .._park import outlast
from .child import Child, Job
from .codec import optional, port_codec
from .main_module import refuse_while_preparing

TRIES = 3
"""Starts in a row that may fail before a place is given up."""


class ProcessCrew:
    """Calls a stage in processes.

    Args:
        node: name of the node.
        stage: a function of a module, or an object that can be pickled. Each process has a copy, and enters and leaves it where
            it is an asynchronous context manager.
        takes: type of its inputs.
        gives: type of its outputs.
        workers: processes, and calls at a time.
        reads_type: type of the cell it reads, ``None`` where it reads none.
        where: the user's own ``file:line`` of the node, for errors.

    Raises:
        NotPortable: the stage cannot be pickled, or a type cannot be carried.
    """

    def __init__(
        self,
        node: str,
        stage: Any,
        takes: Any,
        gives: Any,
        workers: int,
        reads_type: Any | None = None,
        *,
        where: str = "",
    ) -> None:
        self._node = node
        reads = None if reads_type is None else port_codec(node, "reads", optional(reads_type), where)
        codecs = port_codec(node, "in", takes, where), port_codec(node, "out", gives, where)
        payload = _pickled(node, (stage, takes, gives, reads_type), where)
        job = Job(node, payload, *codecs, reads)
        self._places = [_Place(job) for _ in range(workers)]
        self._free = deque(self._places)

    async def open(self) -> None:
        """Start the processes and wait until each has entered the stage.

        Raises:
            Exception: what the stage raised when it was unpickled or entered; no process is left then.
            WorkerDied: a process ended meanwhile.
            RuntimeError: the user's script starts its run when it is imported.
        """
        refuse_while_preparing(self._node)
        try:
            await asyncio.gather(*(place.started(tries=1) for place in self._places))
        except BaseException as error:
            await self._close_after(error)
            raise

    async def call(self, value: Any, context: Context) -> Any:
        """Handle an item in a free process. At most as many calls at a time as there are workers.

        Returns:
            What the stage returned.

        Raises:
            Exception: what the stage raised, or ``RaisedElsewhere`` where that cannot leave its process.
            NotPortable: a value cannot travel, or is not of the declared type.
            WorkerDied: the process ended. The next call has another; where none could be started, ``for_good`` is set.
            CancelledError: the call was cancelled; an asynchronous stage has had a second to clean up.
        """
        place = next((place for place in self._free if place.alive), self._free[0])
        self._free.remove(place)
        try:
            return await (await place.staffed()).run(value, context)
        finally:
            self._free.appendleft(place)

    async def close(self) -> None:
        """Leave the stages and end the processes, whatever cancels come meanwhile. Calls that are under way fail.

        Raises:
            Exception: what the first stage raised that could not be left.
            WorkerDied: a process did not leave its stage in time.
        """
        closings = [asyncio.get_running_loop().create_task(place.close()) for place in self._places]
        cancelled = await outlast(closings)
        errors = [error for closing in closings if (error := closing.result()) is not None]
        if cancelled is not None:
            raise cancelled from (errors[0] if errors else None)
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"and in another process: {type(other).__name__}: {other}")
            raise errors[0]

    async def _close_after(self, error: BaseException) -> None:
        try:
            await self.close()
        except Exception as second:
            error.add_note(f"and closing a process failed: {type(second).__name__}: {second}")


class _Place:
    """Room for one process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._child: Child | None = None
        self._starting: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether a process is here and waits for a call."""
        return self._child is not None and self._child.usable

    async def started(self, tries: int) -> None:
        """Wait for a start of a process here; begin one if none is under way.

        The start goes on where this is cancelled, until the place is closed.
        """
        starting = self._starting
        if starting is None or starting.done():
            starting = self._starting = asyncio.get_running_loop().create_task(self._start(tries))
            starting.add_done_callback(_heard)
        await asyncio.wait([starting])
        if not self._closed:
            starting.result()

    async def _start(self, tries: int) -> None:
        for left in reversed(range(tries)):
            child = Child(self._job)
            try:
                await child.start()
            except Exception:
                if not left:
                    raise
            else:
                self._child = child
                return

    async def staffed(self) -> Child:
        """Give the process here; start one if there is none.

        A start outlives the call that needed it: else a stage whose entering takes longer than the deadline of its node would
        never come back.
        """
        if self._child is not None and not self._child.usable:
            await asyncio.wait([self._child.gone])
        if not self.alive and not self._closed:
            try:
                await self.started(TRIES)
            except Exception as error:
                how = f"{TRIES} starts in its place failed, the last with {type(error).__name__}: {error}"
                raise WorkerDied(self._job.node, how, "make the stage start", for_good=True) from error
        if self._child is None or self._closed:
            raise WorkerDied(self._job.node, "it was closed", "wait for the calls before closing")
        return self._child

    async def close(self) -> BaseException | None:
        """End what is here; give what went wrong on the way."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        return None if self._child is None else await self._child.close()


def _heard(starting: "asyncio.Task[None]") -> None:
    # Whoever waited may have been cancelled. A failure that nobody heard of is no loss: the next call tries again.
    if not starting.cancelled():
        starting.exception()


def _pickled(node: str, parts: Sequence[Any], where: str) -> bytes:
    try:
        return pickle.dumps(parts)
    except Exception as error:
        expected = "a stage and types that can be pickled"
        remedy = "define them at the top of a module, and open what it holds when the stage is entered"
        raise NotPortable(node, "stage", expected, f"{type(error).__name__}: {error}", where, remedy) from error
