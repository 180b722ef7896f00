"""Answer, claims, tables and plots of the experiment ``topology``, made of what was measured and simulated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphs.bench.experiment import Cell, Claim, Column, Findings, Table
from graphs.bench.rates import RATE, TARGET
from graphs.bench.topology.job import COLOCATED, ROLES, TWO_WAY
from graphs.bench.topology.memory import Device
from graphs.bench.topology.report import Found, Report
from graphs.bench.topology.simulated import AHEAD, SCHEDULES, Played
from graphs.report.plots import Plot
from graphs.report.series import Series

MOST_OFF = 1e-4
"""Of a loss beside that of the colocated training."""
LEAST_ALIKE = 0.9
"""Of the simulated and the measured rate of one run: the smaller over the larger."""
_MEGA = 1e6
_HELD = {
    "weights": ("trainer: weights", "trainer: weights, as published"),
    "optimizer": ("trainer: optimizer state",),
    "gradient": ("trainer: gradient",),
    "engine": ("engine: weights",),
    "cache": ("engine: keys and values",),
    "reference": ("reference: weights",),
    "began": ("model: weights, as training began",),
}
"""Columns of memory, and what each holds."""


@dataclass(frozen=True)
class Simulated:
    """What was simulated.

    Attributes:
        efficiencies: ascending.
        sync_gbytes_per_s: of a weight sync.
        timed: the run that was timed, on one device.
        found: by efficiency, topology and schedule.
    """

    efficiencies: Sequence[float]
    sync_gbytes_per_s: float
    timed: Played
    found: Mapping[tuple[float, str, str], Played]


def findings_of(report: Report, simulated: Simulated) -> Findings:
    """What was found."""
    alike = _alike(report, simulated)
    return Findings(
        answer=_answer(report, simulated),
        claims=[*_equal(report), *_moved(report), *_fast(report, alike)],
        tables=[
            _results(report), _syncs(report), _programs(report), _memory(report), _rates(report, simulated),
            *([_measured(report)] if report.rates else []),
        ],
        plots=[_plot(report, simulated)],
        notes=_notes(report, simulated),
        detail={
            "losses": {name: list(each.losses) for name, each in report.budget.items()},
            "times": {name: value for name, value in vars(report.times).items() if name != "episodes"},
            "timed": {"measured": report.timed.groups_per_minute, "simulated": simulated.timed.groups_per_minute},
        },
    )  # fmt: skip


def _answer(report: Report, simulated: Simulated) -> str:
    others = {name: each for name, each in report.budget.items() if name != COLOCATED}
    off = max(each.beside.off["losses"] or 0.0 for each in others.values())
    same = sum(each.beside.same["tokens"] for each in others.values())
    moves = ", ".join(f"{name} {each.sync.engine.received_bytes / _MEGA:.2f} MB" for name, each in report.budget.items())
    most = {name: _fullest(each).most_bytes / _MEGA for name, each in report.budget.items()}
    held = ", ".join(f"{name} {value:.1f} MB" for name, value in most.items())
    return (
        f"On {report.num_devices} {'virtual devices' if report.virtual else report.device_kind} {same} of {len(others)} other "
        f"topologies train the very tokens of the colocated one, with losses that differ by at most {off:.0e}"
        f"{_bits(report)}. A weight sync moves: {moves}; the fullest device takes at most: {held}. "
        f"{_fastest(report, simulated)}"
    )


def _bits(report: Report) -> str:
    if not report.alone:
        return ""
    return (
        f"; with every role on a mesh of one shape {_num_bits(report)} of {len(report.alone)} placements are equal to the bit"
    )


def _fastest(report: Report, simulated: Simulated) -> str:
    if report.rates:
        rates = ", ".join(f"{name} {rate.groups_per_minute:.0f}" for name, rate in report.rates.items())
        return f"Groups per minute, measured: {rates}."
    told: list[str] = []
    for efficiency in dict.fromkeys((simulated.efficiencies[-1], simulated.efficiencies[0])):
        rates = [f"{name} {simulated.found[efficiency, name, AHEAD.name].groups_per_minute:,.0f}" for name in report.budget]
        told.append(f"{', '.join(rates)} if each doubling of devices keeps {efficiency:.0%} of their rate")
    return f"Groups per minute at max_lag=1, simulated and not measured: {'; '.join(told)}."


def _num_bits(report: Report) -> int:
    return sum(all(each.beside.same.values()) for each in report.alone.values())


def _equal(report: Report) -> Iterator[Claim]:
    budget, num = list(report.budget.values()), len(report.budget)
    yield Claim(
        f"largest difference of a loss from that of the colocated training, over {len(budget[0].losses)} steps",
        max(each.beside.off["losses"] or 0.0 for each in budget), MOST_OFF, "most",
    )  # fmt: skip
    for what in ("tokens", "rewards", "advantages"):
        got = sum(each.beside.same[what] for each in budget)
        yield Claim(f"topologies whose {what} are those of the colocated one, to the bit", got, num, "equal")
    if report.alone:
        yield _placements(report)
    yield Claim("different losses in a training, so that a difference would show", len(set(budget[0].losses)), 2)


def _placements(report: Report) -> Claim:
    return Claim(
        "placements of meshes of one shape whose tokens, scores, losses and parameters are the same, to the bit",
        _num_bits(report), len(report.alone), "equal",
    )  # fmt: skip


def _moved(report: Report) -> Iterator[Claim]:
    every = [*report.budget.values(), *report.alone.values()]
    held = sum(each.sync.equal for each in every)
    yield Claim("trainings whose engine held what was published, to the bit", held, len(every), "equal")
    loads = sum(each.loads == len(each.losses) + 1 for each in every)
    yield Claim("trainings whose engine put in force as many bytes as its versions have", loads, len(every), "equal")
    two = report.budget[TWO_WAY].sync
    if two.by_xla is not None and two.on_one_mesh is not None:
        yield Claim(
            "bytes a device receives where XLA changes the layout of two-way on one mesh, over those counted from shardings",
            two.by_xla.received_bytes / two.on_one_mesh.fullest_bytes, 1.0,
        )  # fmt: skip
    unknown = max(device.unknown_bytes / device.arrays_bytes for each in every for device in each.memory)
    yield Claim("most of a device's arrays that no role has, share", unknown, 0.01, "most")


def _fast(report: Report, alike: float) -> Iterator[Claim]:
    yield Claim(
        "grpo_sync on one device: groups per minute over those of the event model, same times", report.timed.ratio, TARGET
    )
    yield Claim("the same run, simulated and measured: the smaller rate over the larger", alike, LEAST_ALIKE)
    for name, rate in report.rates.items():
        yield Claim(f"{name}: groups per minute over those of the event model with the measured times", rate.ratio, TARGET)


def _alike(report: Report, simulated: Simulated) -> float:
    one, other = report.timed.groups_per_minute, simulated.timed.groups_per_minute
    return min(one, other) / max(one, other)


def _named(report: Report) -> Iterator[tuple[str, str, Found]]:
    for name, each in report.budget.items():
        yield f"{report.num_devices} devices", name, each
    for name, each in report.alone.items():
        yield "meshes of one shape", name, each


def _results(report: Report) -> Table:
    rows: list[dict[str, Cell]] = []
    for where, name, each in _named(report):
        same, off = each.beside.same, each.beside.off
        rows.append(
            {
                "where": where, "name": name, **each.devices, "segments": each.num_segments,
                **{what: same[what] for what in ("tokens", "rewards", "advantages", "logprobs", "losses", "parameters")},
                **{f"{what}_off": off[what] for what in ("logprobs", "reference", "losses", "parameters")},
                "reference_same": same["reference"],
            }
        )  # fmt: skip
    columns = [
        Column("where", "on"), Column("name", "topology"), *(Column(role, f"devices of {role}") for role in ROLES),
        Column("segments", "episodes trained"), Column("tokens", "same tokens"), Column("rewards", "same rewards"),
        Column("advantages", "same advantages"), Column("logprobs", "engine's scores: same bits"),
        Column("logprobs_off", "off by", "nats", 2), Column("reference_same", "reference's: same bits"),
        Column("reference_off", "off by", "nats", 2), Column("losses", "losses: same bits"),
        Column("losses_off", "off by", "", 2), Column("parameters", "parameters: same bits"),
        Column("parameters_off", "off by", "", 2),
    ]  # fmt: skip
    note = "beside the colocated training of the same set; a program for another number of devices adds up in another order"
    return Table("results of each topology, all steps", columns, rows, note)


def _syncs(report: Report) -> Table:
    rows: list[dict[str, Cell]] = [
        {
            "name": name, "weights": each.sync.weights_bytes / _MEGA, "shared": each.sync.shared,
            "wanted": each.sync.engine.wanted_bytes / _MEGA, "received": each.sync.engine.received_bytes / _MEGA,
            "fullest": each.sync.engine.fullest_bytes / _MEGA, "reference": each.sync.reference.received_bytes / _MEGA,
            "counted": None if each.sync.on_one_mesh is None else each.sync.on_one_mesh.fullest_bytes / _MEGA,
            "xla": None if each.sync.by_xla is None else each.sync.by_xla.received_bytes / _MEGA,
        }
        for name, each in report.budget.items()
    ]  # fmt: skip
    columns = [
        Column("name", "topology"), Column("weights", "weights", "MB"), Column("shared", "engine reads the trainer's arrays"),
        Column("wanted", "engine's devices hold", "MB"), Column("received", "a sync moves", "MB"),
        Column("fullest", "to a device", "MB"), Column("reference", "to the reference, once", "MB"),
        Column("counted", "on one mesh: counted", "MB a device"), Column("xla", "on one mesh: by XLA", "MB a device"),
    ]  # fmt: skip
    note = (
        "a transfer between meshes is no program, so XLA says nothing of it; on one mesh: the trainer's devices change to the "
        "engine's layout, which XLA makes a program of"
    )
    return Table("bytes of a weight sync, counted from the arrays that trainer and engine then held", columns, rows, note)


def _programs(report: Report) -> Table:
    rows: list[dict[str, Cell]] = []
    for name, each in report.budget.items():
        for program, moved in each.collectives.items():
            kinds = ", ".join(f"{num} {kind}" for kind, num in moved.num.items())
            row = {"name": name, "program": program, "received": moved.received_bytes / _MEGA, "kinds": kinds}
            rows.append({**row, "nested": moved.num_nested})
    columns = [
        Column("name", "topology"), Column("program", "program"), Column("received", "a device receives", "MB a call"),
        Column("kinds", "collectives"), Column("nested", "of them in loops"),
    ]  # fmt: skip
    note = "with the ring algorithm; what stands in a loop is counted once"
    return Table("what the compiled programs move between devices, as XLA says", columns, rows, note)


def _memory(report: Report) -> Table:
    rows: list[dict[str, Cell]] = []
    for name, each in report.budget.items():
        for roles, device in _kinds(each).items():
            held = {column: _held(device, parts) for column, parts in _HELD.items()}
            rows.append(
                {
                    "name": name, "roles": ", ".join(role for role in ROLES if role in roles), **held,
                    "unknown": device.unknown_bytes / _MEGA, "arrays": device.arrays_bytes / _MEGA,
                    "program": device.program, "works": device.program_bytes / _MEGA, "most": device.most_bytes / _MEGA,
                    "peak": None if device.peak_bytes is None else device.peak_bytes / _MEGA,
                }
            )  # fmt: skip
    columns = [
        Column("name", "topology"), Column("roles", "device of"), Column("weights", "trainer's weights", "MB"),
        Column("optimizer", "optimizer", "MB"), Column("gradient", "gradient", "MB"),
        Column("engine", "engine's weights", "MB"),
        Column("cache", "keys and values", "MB"), Column("reference", "reference's weights", "MB"),
        Column("began", "weights as training began", "MB"), Column("unknown", "others", "MB"),
        Column("arrays", "all arrays", "MB"), Column("program", "largest program"), Column("works", "it takes", "MB"),
        Column("most", "at most", "MB"), Column("peak", "at most, as the runtime says", "MB"),
    ]  # fmt: skip
    note = (
        "arrays are measured, in the middle of a step, each counted once: 0 is what a role shares with one before it. What the "
        "largest program works in and gives anew is the compiler's word"
    )
    return Table("memory of the fullest device of each kind", columns, rows, note)


def _held(device: Device, parts: Sequence[str]) -> float | None:
    found = [device.held_bytes[part] for part in parts if part in device.held_bytes]
    return sum(found) / _MEGA if found else None


def _kinds(found: Found) -> dict[frozenset[str], Device]:
    """The fullest device of those whose arrays are of the same roles."""
    kinds: dict[frozenset[str], Device] = {}
    for device in found.memory:
        roles = frozenset(name.partition(":")[0] for name in device.held_bytes)
        if roles not in kinds or device.most_bytes > kinds[roles].most_bytes:
            kinds[roles] = device
    return kinds


def _fullest(found: Found) -> Device:
    return max(found.memory, key=lambda device: device.most_bytes)


def _rates(report: Report, simulated: Simulated) -> Table:
    rows: list[dict[str, Cell]] = []
    every = simulated.efficiencies
    for efficiency in dict.fromkeys((every[-1], every[len(every) // 2], every[0])):
        base = simulated.found[efficiency, COLOCATED, AHEAD.name].groups_per_minute
        for name, each in report.budget.items():
            of = {schedule.name: simulated.found[efficiency, name, schedule.name] for schedule in SCHEDULES}
            rows.append(
                {
                    "efficiency": efficiency, "name": name, "devices": "+".join(_own(each)),
                    **{schedule: run.groups_per_minute for schedule, run in of.items()},
                    "times": of[AHEAD.name].groups_per_minute / base,
                    **{f"{role}_busy": of[AHEAD.name].busy[role] for role in ROLES},
                }
            )  # fmt: skip
    columns = [
        Column("efficiency", "rate kept by a doubling", "share"), Column("name", "topology"), Column("devices", "devices"),
        *(Column(schedule.name, schedule.name, RATE) for schedule in SCHEDULES),
        Column("times", "max_lag=1 over colocated"),
        *(Column(f"{role}_busy", f"{role} busy, max_lag=1", "share") for role in ROLES),
    ]  # fmt: skip
    note = (
        "in virtual time from stage times of one device; nothing here was measured on several. The plot has more efficiencies"
    )
    return Table("simulated rates: a row for each topology and efficiency", columns, rows, note)


def _own(found: Found) -> list[str]:
    """Sizes of its meshes."""
    return [str(number) for role, number in found.devices.items() if role == "trainer" or not found.shares[role]]


def _measured(report: Report) -> Table:
    columns = [
        Column("name", "topology"), Column("rate", "groups per minute", RATE), Column("model", "event model, same times", RATE),
        Column("ratio", "run over model", "share"),
    ]  # fmt: skip
    rows: list[dict[str, Cell]] = [
        {"name": name, "rate": rate.groups_per_minute, "model": rate.model, "ratio": rate.ratio}
        for name, rate in report.rates.items()
    ]
    return Table("measured rates at max_lag=1", columns, rows)


def _plot(report: Report, simulated: Simulated) -> Plot:
    return Plot(
        title="Simulated groups per minute at max_lag=1",
        meaning="by what is left of the rate of a device each time that their number doubles",
        xs=list(simulated.efficiencies),
        series=[
            Series(name, [simulated.found[each, name, AHEAD.name].groups_per_minute for each in simulated.efficiencies])
            for name in report.budget
        ],
        unit=RATE,
        x_unit="rate kept by a doubling",
    )


def _notes(report: Report, simulated: Simulated) -> list[str]:
    times = report.times
    where = (
        f"The {report.num_devices} devices are virtual ones of a CPU, in a process of their own: shardings, programs, arrays "
        "and numbers are those of as many devices, times are not. So no rate of several devices was measured."
        if report.virtual
        else f"The devices are {report.num_devices} of {report.device_kind}; rates at max_lag=1 were measured besides."
    )
    return [
        where,
        "What is simulated is the product's scheduler: it runs in virtual time over stages that take what they took on "
        f"one device behind the whole-batch barrier, where nobody computes beside the trainer: a step of the engine "
        f"that samples {1e3 * times.decode_s:.2f} ms, one that reads in {1e3 * times.prefill_s:.2f} ms, the gradient of a "
        f"group {1e3 * times.gradient_s:.1f} ms, its reference scores {1e3 * times.score_s:.1f} ms, an update "
        f"{1e3 * times.update_s:.1f} ms.",
        "Assumed: a role on n devices takes its time on one over n, times the efficiency to the power of log2(n), in every "
        f"program; a device receives {simulated.sync_gbytes_per_s:g} GB of a weight sync in a second; the host and the tools "
        "take what they took; what shares a mesh takes turns there, first come first served, a step or a group at a time. "
        "In the product nobody arranges such turns: engine, trainer and reference start programs from threads of their own.",
        f"Held against what was measured, the run that gave the times makes {report.timed.groups_per_minute:.0f} groups a "
        f"minute, and simulated {simulated.timed.groups_per_minute:.0f}. How the times of a real model scale is another "
        "question, which the efficiency stands for; a model this small gains nothing from eight real devices.",
        "Equal to the bit is what placement alone can promise, and it is tried with meshes of one shape. Over other numbers of "
        "devices sums are taken in another order, so scores and losses are off by rounding; a token that is a close call could "
        "then be drawn otherwise. None was here, if the tokens are the same." if _tokens_same(report) else
        "Over other numbers of devices sums are taken in another order, and a token that was a close call was drawn otherwise.",
        "The weights as training began stay on the trainer's devices until it ends, beside those that are trained; a reference "
        "that shares the mesh is made of them and takes nothing more.",
        "Where one mesh has all roles, the engine computes with weights laid out as the trainer's, so each of its steps adds "
        "up across all devices; with devices of its own it has them split by tensor. Both stand in the table of programs.",
    ]  # fmt: skip


def _tokens_same(report: Report) -> bool:
    return all(each.beside.same["tokens"] for each in report.budget.values())
