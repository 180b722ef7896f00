import asyncio
import os
from pathlib import Path

import pytest

from stages.tools.python import PythonTools

KEY = (0, 0, 0, 0)


@pytest.mark.slow
def test_a_program_is_run_and_answered_with_what_it_printed():
    async def run():
        async with PythonTools(max_output_chars=400).open(KEY) as (tool,):
            kept = await tool.call({"code": "open('note', 'w').write('kept')"}, (0,))
            codes = ["print(6 * 7)", "1 / 0", "print(open('note').read())", "print('x' * 10**6)"]
            return [kept, *[await tool.call({"code": code}, (0,)) for code in codes], await tool.call({"cod": ""}, (0,))]

    kept, six, error, note, long, invalid = asyncio.run(run())
    assert kept.text == "(nothing was printed)"
    assert (six.text, six.outcome) == ("42\n", "answer")
    assert error.text.startswith(
        'exit status 1\nTraceback (most recent call last):\n  File "~/main.py", line 1, in <module>\n    1 / 0'
    )
    assert note.text == "kept\n"
    assert len(long.text) == 400
    assert long.text.endswith("characters]")
    assert invalid.outcome == "invalid"


@pytest.mark.slow
def test_a_program_past_its_deadline_is_killed_and_answered():
    """S29."""

    def children():
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text()

    async def run():
        async with PythonTools(deadline_s=0.4).open(KEY) as (tool,):
            late = await tool.call({"code": "import time; time.sleep(600)"}, (0,))
            return late, children()

    before = children()
    late, after = asyncio.run(run())
    assert (late.text, late.outcome) == ("error: no answer within 0.4 s", "failed")
    assert after == before


@pytest.mark.slow
def test_nothing_that_a_program_leaves_in_its_folder_is_opened_by_the_run(tmp_path):
    """S29: a link out of the folder, a pipe and a folder, each under the name that the program has in its errors."""
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    traps = [f"os.symlink({str(outside)!r}, 'main.py')", "os.mkfifo('main.py')", "os.mkdir('main.py')"]

    async def run(trap):
        async with PythonTools(deadline_s=20).open(KEY) as (tool,):
            first = await tool.call({"code": f"import os; {trap}"}, (0,))
            return first.text, (await tool.call({"code": "print(6 * 7)"}, (0,))).text

    async def run_all():
        return await asyncio.wait_for(asyncio.gather(*map(run, traps)), 40)

    assert asyncio.run(run_all()) == [("(nothing was printed)", "42\n")] * 3
    assert outside.read_text() == "as it was"


@pytest.mark.slow
def test_programs_of_one_turn_that_run_side_by_side_are_each_their_own():
    async def run():
        async with PythonTools(deadline_s=20).open(KEY) as (tool,):
            return await asyncio.gather(*(tool.call({"code": f"print({number})"}, (0,)) for number in range(3)))

    assert [answer.text for answer in asyncio.run(run())] == ["0\n", "1\n", "2\n"]


def test_the_model_is_shown_one_tool():
    (spec,) = PythonTools().specs
    assert spec.name == "python"
    assert spec.parameters["required"] == ["code"]
