"""What a random graph gives, told without the engine: one item after the other, each through one part after the other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._policy import Retry, Shrink
from ._graphs import END, RandomGraph
from ._parts import Fork, Pair, Part, Side, Step
from ._works import Path

Reached = Counter[tuple[Path, Any]]
"""How often which (path, members) reached an end. The members of a group are those of the groups it was made of, if any."""


@dataclass(frozen=True)
class Expected:
    """What reaches one end of a graph.

    Attributes:
        must: what reaches it whatever the schedule.
        may: what reaches it at most. More only for copies of members whose group is dropped, which goes on as long as nobody
            has told their stages, and with feedback, where the engine chooses which groups are trained.
    """

    must: Reached
    may: Reached


class Travel(NamedTuple):
    """An item in the interpreter. A tuple, since one is made for each step of each item.

    Attributes:
        path: who it is.
        value: what it carries; of what was gathered, the members.
        gathered: whether it was gathered.
        retry: recorded failures so far.
        failed: whether it stands for a failure.
        gone: whether it was dropped.
    """

    path: Path
    value: Any
    gathered: bool = False
    retry: int = 0
    failed: bool = False
    gone: bool = False


class Arrived(NamedTuple):
    """An item that reached an end; ``certain`` whatever the schedule."""

    end: str
    item: Travel
    certain: bool = True


def expected(drawn: RandomGraph) -> dict[str, Expected]:
    """Say what reaches each end, by its name. An end that nothing reaches is left out."""
    arrived: list[Arrived] = []
    for index, (tasks, parts) in enumerate([(drawn.tasks, ()), *((inlet.tasks, inlet.parts) for inlet in drawn.inlets)]):
        prefix = (index,) if drawn.inlets else ()
        for count in range(tasks):
            items = _line(drawn.seed, (*parts, *drawn.parts), Travel((*prefix, count), count), arrived)
            arrived += [Arrived(END, item) for item in items if not item.gone]
    found: dict[str, Expected] = {}
    for each in arrived:
        end = found.setdefault(each.end, Expected(Counter(), Counter()))
        key = (each.item.path, each.item.value if each.item.gathered else None)
        end.may[key] += 1
        if each.certain and drawn.training is None:
            end.must[key] += 1
    return found


def _line(seed: int, parts: Sequence[Part], item: Travel, arrived: list[Arrived]) -> list[Travel]:
    """What a line makes of an item. Those that are gone stay in the list, for the barrier that hears of them."""
    items = [item]
    for part in parts:
        items = [made for each in items for made in ([each] if each.gone else _through(seed, part, each, arrived))]
    return items


def _through(seed: int, part: Part, item: Travel, arrived: list[Arrived]) -> list[Travel]:
    """What a part makes of an item: one case for each kind of part."""
    if isinstance(part, Step):
        return _step(seed, part, item)
    if isinstance(part, Pair):
        return _pair(seed, part, item, arrived)
    return _side(seed, part, item, arrived) if isinstance(part, Side) else _fork(seed, part, item, arrived)


def _step(seed: int, step: Step, item: Travel) -> list[Travel]:
    last = item.retry + step.retries
    for retry in range(item.retry, last + 1):
        fate = step.fate(seed, item.path, retry)
        if fate == "raise":
            continue
        if fate == "filter":
            return [item._replace(retry=retry, gone=True)]
        passed = item._replace(retry=retry, value=item.value if item.gathered else item.path)
        return [passed._replace(path=(*item.path, index)) for index in range(fate)] if step.spread else [passed]
    return [item._replace(retry=last, failed=True) if step.then == "emit" else item._replace(retry=last, gone=True)]


def _side(seed: int, side: Side, item: Travel, arrived: list[Arrived]) -> list[Travel]:
    for index, branch in enumerate(side.branches):
        items = _line(seed, branch, item._replace(path=(*item.path, index)), arrived)
        arrived += [Arrived(side.end_of(index), made) for made in items if not made.gone]
    return [item._replace(path=(*item.path, len(side.branches)))]


def _fork(seed: int, fork: Fork, item: Travel, arrived: list[Arrived]) -> list[Travel]:
    if fork.kind == "broadcast":
        ways = [(index, item._replace(path=(*item.path, index))) for index in range(len(fork.branches))]
    elif fork.kind == "balance":
        ways = [(0, item)]
    else:
        key = fork.key(seed, item.value)
        if key >= len(fork.doors):
            return [item._replace(gone=True)]
        ways = [(fork.doors[key], item)]
    items: list[Travel] = []
    for index, way in ways:
        made = _line(seed, fork.branches[index], way, arrived)
        if fork.joined:
            items += made
        else:
            arrived += [Arrived(fork.end_of(index), each) for each in made if not each.gone]
    return items


def _pair(seed: int, pair: Pair, origin: Travel, arrived: list[Arrived]) -> list[Travel]:
    sides: list[Arrived] = []
    first = origin._replace(retry=0, failed=False)
    members = [_member(seed, pair, first._replace(path=(*origin.path, index)), sides) for index in range(pair.size)]
    good = tuple(member.value for member in members if member is not None)
    drops = pair.missing == "drop" or (isinstance(pair.missing, Retry) and pair.missing.then == "drop")
    fewest = pair.size if drops else pair.missing.min_members if isinstance(pair.missing, Shrink) else 1
    whole = len(good) >= fewest
    # A group that drops early leaves copies behind or not; one that waits for all its members does not.
    arrived += [each._replace(certain=each.certain and (whole or not drops)) for each in sides]
    return [Travel(origin.path, good, gathered=True)] if whole else []


def _member(seed: int, pair: Pair, member: Travel, arrived: list[Arrived]) -> Travel | None:
    """A member as the barrier gets it, after as many rounds as it grants; ``None`` where all of them fail."""
    retry, aside = 0, _retries_aside(pair)
    for _ in range((pair.missing.times if isinstance(pair.missing, Retry) else 0) + 1):
        (made,) = _line(seed, pair.inside, member._replace(retry=retry), arrived)
        if not (made.gone or made.failed):
            return made
        retry = made.retry + aside + 1
    return None


def _retries_aside(pair: Pair) -> int:
    """Most retries of a copy of a member, whose numbers the member itself leaves out."""
    branches = [branch for side in pair.inside if isinstance(side, Side) for branch in side.branches]
    return max((sum(step.retries for step in branch if isinstance(step, Step)) for branch in branches), default=0)
