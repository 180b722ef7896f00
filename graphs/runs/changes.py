"""What a run may change when it goes on: settings, graph and versions compared with those it was saved with. Pure.

A difference is *accepted* where it decides how fast or how long a run is, *refused* where what was done would have been another
thing with it, which may be accepted by name, and *impossible* where what was saved does not fit what is now.
"""

import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from flow.saving import Difference

Verdict = Literal["accepted", "refused", "impossible"]

MAY_CHANGE: Mapping[str, str] = {
    "*.steps": "how long",
    "*.max_concurrency": "how fast",
    "*.barrier": "how fast",
    "*.rates.*": "how fast",
    "*.pools.*": "how fast",
    "*.delay.*": "how fast",
    "*.deadline_s": "how long something may take",
    "*.limits.*": "how long something may take",
    "*.evaluate.num_tasks": "size of the evaluations to come",
    "*.evaluate.attempts": "size of the evaluations to come",
    "*.evaluate.pass_at": "what evaluations tell",
    "*.gate.*_*": "when the run is stopped",
    "*.gate.patience": "when the run is stopped",
    "*.trainer.on_bad_step": "when the run is stopped",
    "*.trainer.max_grad_norm_skip": "which updates are bad",
    "*.trainer.max_grad_norm_ratio": "which updates are bad",
    "*.trainer.max_bad_steps": "what is kept to look at",
    "*.trainer.no_signal_warning": "what is told",
    "*.trainer.optimizer_memory": "where arrays rest",
    "*.memory": "where arrays rest",
    "*.trainer.rows_per_microbatch": "memory; the last bits of numbers may differ",
    "*.trainer.row_lengths": "memory; the last bits of numbers may differ",
    "*.trainer.split_last": "memory; the last bits of numbers may differ",
    "*.trainer.remat": "memory; the last bits of numbers may differ",
    "*.rows_per_batch": "memory; the last bits of numbers may differ",
    "*engine.slots": "how fast; the last bits of numbers may differ",
    "*engine.kept": "how fast; the last bits of numbers may differ",
    "*engine.eviction": "how fast; the last bits of numbers may differ",
    "*engine.prefill_*": "how fast; the last bits of numbers may differ",
    "*servers.urls": "where is sampled",
    "*servers.weights": "where weights are handed over",
    "*servers.token_variable": "how servers are asked",
    "*servers.attempts": "how servers are asked",
    "*servers.*_s": "how servers are asked",
    "*servers.slots": "how fast; the last bits of numbers may differ",
}
"""Settings, by the end of their path, that a run may go on with changed, and what they decide. Every other one is refused."""
HASHED = ("model", "tokenizer", "template")
"""What of ``versions.py`` must be the same."""
ANOTHER_RUN = "the run would have been another with it"


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        path: of the setting, such as ``rl.group_size``, or of what else differs.
        before: as it was saved.
        now: as it is.
        verdict: whether the run goes on with it.
        why: in few words.
    """

    path: str
    before: Any
    now: Any
    verdict: Verdict
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.before)} before, {_shown(self.now)} now; {self.verdict}: {self.why}"


def of_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], accepted: Sequence[str] = (), over: Collection[str] = ()
) -> list[Change]:
    """Compare settings field by field, in the order of those now.

    Args:
        before: as they were saved.
        now: as they are, in the same form.
        accepted: paths that are accepted by name, with dashes or underscores.
        over: names of phases that are over; what has a section of that name changes nothing any more.

    Raises:
        ValueError: something is accepted by name that is no setting. One that does not differ is none of the mistakes: a
            scheduler gives the same arguments at each start, and differences are those to the latest.
    """
    apart = list(_apart(before, now))
    paths = [path for path, _, _ in apart]
    names = {name.replace("-", "_").removeprefix("__") for name in accepted}
    found = [_setting(path, old, new, path in names, over) for path, old, new in apart]
    if unknown := sorted(names - set(paths) - set(_paths(now))):
        raise ValueError(
            f"expected settings that differ from those the run was saved with, got {', '.join(unknown)}, in --options.accept; "
            f"those that differ are {', '.join(paths) or 'none'}"
        )
    return found


def of_graph(found: Sequence[Difference], settings: Sequence[Change]) -> list[Change]:
    """Differences of the graph under way. One that a run may not go on with does not fit its items, whoever accepts it.

    Those that a run may go on with follow from settings, which are told already; they are left out where any differ.
    """
    told = bool(settings)
    return [
        Change(one.path, one.before, one.now, *_of_graph(one)) for one in found if one.verdict == "refuse" or not told
    ]  # fmt: skip


def _of_graph(one: Difference) -> tuple[Verdict, str]:
    if one.verdict == "refuse":
        return "impossible", "what was saved is of the graph as it was"
    return "accepted", "nothing that was saved depends on it"


def of_versions(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """What a run depends on beside its settings: hashes must be the same, versions and machines may differ."""
    changes = []
    for path, old, new in _apart(before, now):
        hashed = path in HASHED
        verdict: Verdict = "impossible" if hashed else "accepted"
        why = "what was saved was made with it" if hashed else "the last bits of numbers may differ"
        changes.append(Change(path, old, new, verdict, why))
    return changes


def stopping(changes: Sequence[Change]) -> list[Change]:
    """Those that a run cannot go on with."""
    return [change for change in changes if change.verdict != "accepted"]


def _setting(path: str, before: Any, now: Any, named: bool, over: Collection[str]) -> Change:
    if path.partition(".")[0] in over:
        return Change(path, before, now, "impossible", "that phase is over")
    why = next((why for pattern, why in MAY_CHANGE.items() if fnmatch.fnmatchcase(f".{path}", pattern)), None)
    if why is not None:
        return Change(path, before, now, "accepted", why)
    return Change(path, before, now, "accepted", "by name") if named else Change(path, before, now, "refused", ANOTHER_RUN)


def _apart(before: Mapping[str, Any], now: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, before and now of each difference; a section that is on one side only is one."""
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _apart(cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new), f"{above}{name}.")
        elif old != new:
            yield f"{above}{name}", old, new


def _paths(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in settings.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _paths(cast("Mapping[str, Any]", value), f"{above}{name}.")


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
