"""What ``summary.json`` says of the main phase of a program, also where it did not reach its end."""

from typing import Any

from flow import Summary
from flow.trace import LoopLag
from graphs.program import Program
from graphs.runs.folder import RunFolder
from graphs.runs.progress import Spent

_STATES = {"input": "input_wait", "ticket": "ticket_wait", "pool": "pool_wait", "work": "work", "output": "output_wait"}


def of_phase(program: Program, outcome: Summary, folder: RunFolder, spent: Spent, lag: LoopLag) -> dict[str, Any]:
    """Figures of one phase, over all starts of its run; ``loop_lag_p99_ms`` is of the last one.

    ``episodes`` counts every attempt that ended, failed ones and their retries included, by status; ``goodput`` is trained over
    sampled tokens of those; ``sources`` says what became of the tasks drawn from each (``stages.outcomes``); what a phase does
    not do is ``None``.
    """
    steps = folder.steps
    sampled = folder.num_sampled if folder.episodes else None
    return {
        "steps": steps.count,
        "train_s": spent.phase_s,
        "episodes": dict(folder.episodes),
        "sampled_tokens": sampled,
        "trained_tokens": steps.trained_tokens,
        "goodput": steps.trained_tokens / sampled if sampled else None,
        "lag_mean": steps.lag_mean,
        "lag_max": steps.lag_max,
        "max_lag": program.max_lag,
        "sources": folder.outcomes.report(),
        "ledger_balanced": outcome.balanced,
        "leftovers": dict(outcome.leftovers),
        "loop_lag_max_ms": spent.lag_max_ms,
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
