"""An environment: it opens, answers turns and scores. Calls of its tools are answered for it."""

from stages.envs.custom import CustomEnv, over

from tools import LOOK_UP


class Quiz(CustomEnv):
    tools = (LOOK_UP,)

    def reset(self, task, key):
        self.answer, self.right = task.answer, False
        return task.prompt

    def step(self, message):
        self.right = message.content.strip() == self.answer
        return over()

    def score(self):
        return float(self.right)
