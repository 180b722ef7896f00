"""Tasksets made with the verifiers package, for test_verifiers_env.py: sums, with and without a tool.

A module of its own, since the tool server is another process that imports it by its name.
"""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=2.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(self.data.answer in (trace.last_reply or ""))

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class Adder(vf.Toolset[vf.ToolsetConfig]):
    @vf.tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class ToolTask(SumTask):
    @classmethod
    def toolsets(cls, config):
        return [Adder(vf.ToolsetConfig())]

    @vf.stop
    async def said_stop(self, trace: vf.Trace) -> bool:
        return "stop" in (trace.last_reply or "")


class BrokenTask(SumTask):
    async def setup(self, trace, runtime):
        raise RuntimeError("the disk is full")


class BadlyScoredTask(SumTask):
    @vf.reward
    async def broken(self, trace: vf.Trace) -> float:
        raise RuntimeError("the judge is down")


def sums(kind: type[SumTask]) -> vf.Taskset:
    class Sums(vf.Taskset[kind, vf.TasksetConfig]):
        def load(self):
            for a, b in ((2, 3), (40, 2)):
                data = SumData(prompt=f"{a}+{b}?", answer=str(a + b), system_prompt="Be brief.")
                yield kind(data, self.config.task)

    return Sums(vf.TasksetConfig())


if __name__ == "__main__":
    Adder.run()
