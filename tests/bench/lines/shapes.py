"""The lines that the engine is held to, and the mean times of their stages."""

from graphs.bench.model.spec import Drawn, Line, Work

MEANS = {"fetch": 0.5, "play": 1.0, "judge": 0.5, "score": 0.25, "add": 0.1, "finish": 0.5, "load": 0.2}
"""Seconds."""
FAILING = 0.05
KINDS = ("constant", "exponential", "pareto")


def shapes(steps: int) -> tuple[Line, ...]:
    """The lines, each of so many steps."""
    fetch, score = Work("fetch", 2, 4), Work("score", 2, 4)
    play, judge = Work("play", 32, 32, {"engine": 1}, reads=True), Work("judge", 8, 16, {"engine": 1})
    shared = (Work("play", 8, 8, {"engine": 1}), Work("judge", 4, 8, {"engine": 1, "sandbox": 1}))
    return (
        Line("pools", 8, steps, before=shared, pools={"engine": 6, "sandbox": 3}),
        Line("groups", 4, steps, before=(fetch,), members=(Work("play", 16, 16),), after=(score,), size=4, missing="retry"),
        Line("on policy", 4, steps, members=(Work("play", 16, 16, reads=True),), after=(score,), size=4, max_lag=0),
        Line(
            "wait", 4, steps, members=(play, judge), after=(score,), size=4, missing="retry", pools={"engine": 24}, max_lag=1
        ),
        Line(
            "drop", 4, steps, members=(play, judge), after=(score,), size=4, missing="shrink", pools={"engine": 24}, max_lag=2,
            late="drop",
        ),
    )  # fmt: skip


def times(kind: str, seed: int, scale: float = 1.0, oversleep_s: float = 0.0) -> Drawn:
    """Draws of one kind, ``scale`` times as long as the means say."""
    means = {name: mean * scale for name, mean in MEANS.items()}
    return Drawn(kind, means, FAILING, seed, oversleep_s)  # type: ignore[arg-type]
