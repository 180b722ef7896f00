"""What ``summary.json`` says of the main phase of a program, also where it did not reach its end."""

from typing import Any

from flow import Summary
from flow.trace import LoopLag
from graphs.program import Program
from graphs.run_folder import RunFolder

_STATES = {"input": "input_wait", "ticket": "ticket_wait", "pool": "pool_wait", "work": "work", "output": "output_wait"}


def of_phase(program: Program, outcome: Summary, folder: RunFolder, lag: LoopLag) -> dict[str, Any]:
    """Figures of one phase.

    ``episodes`` counts every attempt that ended, failed ones and their retries included, by status; ``goodput`` is trained over
    sampled tokens of those; ``sources`` says what became of the tasks drawn from each (``stages.outcomes``); what a phase does
    not do is ``None``.
    """
    rows = folder.steps
    trained = sum(row.get("trained_tokens") or 0 for row in rows)
    lags = [row["lag_mean"] for row in rows if row.get("lag_mean") is not None]
    sampled = folder.num_sampled if folder.episodes else None
    return {
        "steps": len(rows),
        "train_s": outcome.seconds,
        "episodes": dict(folder.episodes),
        "sampled_tokens": sampled,
        "trained_tokens": trained,
        "goodput": trained / sampled if sampled else None,
        "lag_mean": sum(lags) / len(lags) if lags else None,
        "lag_max": max((row["lag_max"] for row in rows if row.get("lag_max") is not None), default=None),
        "max_lag": program.max_lag,
        "sources": folder.outcomes.report(),
        "ledger_balanced": outcome.balanced,
        "loop_lag_max_ms": lag.max_ms,
        "loop_lag_p99_ms": lag.quantile_ms(0.99),
        "seed": getattr(program.config, "seed", None),
        "stages": {
            name: {
                "taken": node.taken,
                "emitted": node.emitted,
                "dropped": node.dropped,
                "lost": node.lost,
                "retried": node.retried,
                "failures": {kind: trace.strip().splitlines()[-1:] for kind, trace in node.failures.items()},
                "high_water": node.high_water,
                **{f"{_STATES[state]}_share": share for state, share in node.shares.items()},
            }
            for name, node in outcome.nodes.items()
        },
    }
