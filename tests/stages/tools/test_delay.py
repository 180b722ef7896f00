import asyncio
import math
import statistics

import numpy as np
import pytest

from stages.tools.calculator import calculator_tool
from stages.tools.delay import DelayConfig, DelayedTool, delay_s
from stages.tools.disabled import DisabledTool

CONFIG = DelayConfig(scale_s=0.1, shape=1.5, max_s=2.0)


def test_delays_follow_the_pareto_distribution():
    """Its quantiles are scale * (1 - q) ** (-1 / shape); the sample's differ by sampling error only."""
    delays = sorted(delay_s(CONFIG, (7, i)) for i in range(20_000))
    assert delays[0] >= 0.1
    assert delays[-1] == 2.0
    for share in (0.25, 0.5, 0.9):
        assert delays[int(share * len(delays))] == pytest.approx(0.1 * (1 - share) ** (-1 / 1.5), rel=0.03)
    # Mean of a Pareto cut at m: scale * shape/(shape-1) * (1 - (scale/m)**(shape-1)) + m * (scale/m)**shape, by integration.
    cut = 0.1 / 2.0
    mean = 0.1 * 3 * (1 - cut**0.5) + 2.0 * cut**1.5
    assert statistics.fmean(delays) == pytest.approx(mean, rel=0.03)


def test_a_delay_is_a_function_of_its_key_alone():
    keys = [(0, birth, member, 0, turn, 0) for birth in range(3) for member in range(3) for turn in range(3)]
    first = [delay_s(CONFIG, key) for key in keys]
    assert first == [delay_s(CONFIG, key) for key in keys]
    assert len(set(first)) == len(keys)
    assert delay_s(CONFIG, (0, 1)) == delay_s(CONFIG, np.array([0, 1])) == pytest.approx(0.105045628, abs=1e-9)


def test_a_constant_and_no_delay_can_be_asked_for():
    assert delay_s(DelayConfig(scale_s=0.25, shape=math.inf), (1,)) == 0.25
    assert delay_s(DelayConfig(scale_s=0), (1,)) == 0


def test_a_delayed_tool_answers_as_the_tool_does_only_later():
    tool = DelayedTool(calculator_tool(), DelayConfig(scale_s=0.02, shape=math.inf))

    async def timed():
        loop = asyncio.get_running_loop()
        start = loop.time()
        answer = await tool.call({"expression": "2*3"}, (0,))
        return answer.text, loop.time() - start

    text, seconds = asyncio.run(timed())
    assert text == "6"
    assert seconds >= 0.02
    assert tool.parameters == calculator_tool().parameters


def test_a_disabled_tool_looks_the_same_and_never_works():
    tool = DisabledTool(calculator_tool())
    assert (tool.name, tool.description, tool.parameters) == (
        calculator_tool().name,
        calculator_tool().description,
        calculator_tool().parameters,
    )
    answer = asyncio.run(tool.call({"expression": "2*3"}, (0,)))
    assert (answer.text, answer.outcome) == ("error: not available", "failed")
