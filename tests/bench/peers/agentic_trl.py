"""TRL's GRPO on the agentic workload, on torch, in a process of its own. Arguments: workload, events, folder, JSON of settings.

``GRPOTrainer`` with its own generation, loss and update. Episodes are played by a ``rollout_func``, TRL's way for worlds of
one's own: it asks TRL for a turn of all episodes that are ready, lets the others wait for their tools meanwhile, and tries an
episode that failed again. TRL's own loop over tools (``environment_factory``) waits for the tools of one episode after the
other and would be slower by the sum of all delays. Settings: ``micro``: sequences in a micro-batch; ``ready``: ask for whoever
is ready (``true``), or wait for all of a turn (``false``); ``threads`` of torch, ``null`` for its own number. Runs in TRL's
environment.
"""

import json
import logging
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from agentic_world import Events, Failed, Letters, Play, Workload, between, opening, read
from datasets import Dataset
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def main(workload: Workload, events: Events, folder: Path, settings: dict[str, Any]) -> None:
    """All updates."""
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    trainer = make_trainer(workload, events, settings)
    tell_updates(trainer, workload, events)
    trainer.train()
    events.tell("ended")
    trainer.model.save_pretrained(folder)


def make_trainer(workload: Workload, events: Events, settings: dict[str, Any]) -> GRPOTrainer:
    """The trainer: one generation for each update."""
    sequences = workload.group_size * workload.groups_per_update
    micro = settings["micro"]
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_steps=10**6,
        disable_tqdm=True, beta=0.0, loss_type="dapo", epsilon=0.2, learning_rate=workload.learning_rate,
        lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, per_device_train_batch_size=micro,
        gradient_accumulation_steps=sequences // micro, num_generations=workload.group_size, max_steps=workload.updates,
        max_completion_length=workload.response_tokens, temperature=1.0, top_p=1.0, top_k=0, gradient_checkpointing=False,
        use_vllm=False, shuffle_dataset=False, seed=workload.seed, dataloader_pin_memory=False,
    )  # fmt: skip
    letters = Letters(workload.tokens)
    model = AutoModelForCausalLM.from_pretrained(workload.model, dtype=torch.float32)
    return GRPOTrainer(
        model=model,
        reward_funcs=lambda earned, **_: earned,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [task.name for task in workload.tasks]}),
        processing_class=make_tokenizer(workload, letters),
        rollout_func=Rollout(workload, letters, events, settings["ready"]),
    )


def make_tokenizer(workload: Workload, letters: Letters) -> PreTrainedTokenizerFast:
    """Letters, as transformers wants them."""
    names: dict[str, int] = {}
    for index, token in enumerate(workload.tokens):
        names[token if token not in names else f"<|{index}|>"] = index
    words = Tokenizer(WordLevel(names, unk_token="<|pad|>"))
    words.pre_tokenizer = Split(Regex(r"<\|[a-z]+\|>|."), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<|pad|>", eos_token="<|end|>", bos_token="<|bos|>", unk_token="<|pad|>"
    )


class Episode:
    """What is trained of a play."""

    def __init__(self, play: Play, prompt: list[int]) -> None:
        self.play, self.prompt = play, prompt
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.due = 0.0

    def add(self, ids: list[int], mask: int) -> None:
        """Sampled ids, or what the world said."""
        self.ids += ids
        self.mask += [mask] * len(ids)


class Rollout:
    """Plays all episodes of an update.

    Args:
        workload: theirs.
        letters: tokenizer.
        events: gets to know of them.
        ready: whether a turn is asked for as soon as some are ready.
    """

    def __init__(self, workload: Workload, letters: Letters, events: Events, ready: bool) -> None:
        self._workload, self._letters, self._events, self._ready = workload, letters, events, ready
        self._tasks = {task.name: task for task in workload.tasks}

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        """See ``GRPOTrainer``, ``rollout_func``: a prompt is the name of a task, once for each member."""
        members: Counter[str] = Counter()
        episodes: list[Episode] = []
        for name in prompts:
            episodes.append(self._begin(name, members[name], 0))
            members[name] += 1
        going = dict(enumerate(episodes))
        while going:
            due = [one.due for one in going.values()]
            time.sleep(max(0.0, (min(due) if self._ready else max(due)) - time.monotonic()))
            now = time.monotonic()
            asked = [number for number, one in going.items() if one.due <= now]
            contexts = [going[number].prompt + going[number].ids for number in asked]
            said, _ = trainer._generate_single_turn(contexts, None, {}, 1)
            for number, ids in zip(asked, said, strict=True):
                going[number] = episodes[number] = self._heard(going[number], ids, prompts[number])
                if going[number].due == float("inf"):
                    del going[number]
        return {
            "prompt_ids": [one.prompt for one in episodes],
            "completion_ids": [one.ids for one in episodes],
            "logprobs": None,
            "env_mask": [one.mask for one in episodes],
            "earned": [one.play.end() for one in episodes],
        }

    def _begin(self, name: str, member: int, retry: int) -> Episode:
        play = Play(self._workload, self._tasks[name], member, self._events, retry)
        return Episode(play, self._letters.encode(opening(play.begin())))

    def _heard(self, episode: Episode, ids: list[int], name: str) -> Episode:
        """The episode after a turn; one that is over is due never."""
        self._events.tell("sampled", tokens=len(ids))
        left = self._workload.response_tokens - len(episode.ids)
        episode.add(ids[:left], 1)
        episode.due = float("inf")
        if len(ids) > left or ids[-1] != self._letters.end:
            return episode
        try:
            seconds, answer = episode.play.hear(self._letters.decode(ids[:-1]))
        except Failed:
            return self._begin(name, episode.play.member, 1)
        if answer is None:
            return episode
        reply = self._letters.encode(between(answer))
        if len(episode.ids) + len(reply) >= self._workload.response_tokens:
            return episode
        episode.add(reply, 0)
        episode.due = time.monotonic() + seconds
        return episode


def tell_updates(trainer: GRPOTrainer, workload: Workload, events: Events) -> None:
    """Tell when the trainer works: forward and backward pass, and the optimizer."""
    prepare, step = trainer._prepare_inputs, trainer.training_step

    def prepared(*arguments: Any, **more: Any) -> Any:
        inputs = prepare(*arguments, **more)
        events.tell("train_begin")
        return inputs

    def stepped(*arguments: Any, **more: Any) -> Any:
        loss = step(*arguments, **more)
        events.tell("train_end")
        return loss

    trainer._prepare_inputs, trainer.training_step = prepared, stepped

    class Updates(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            events.tell("train_begin")

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            events.tell("train_end")

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            last = state.global_step * workload.groups_per_update
            events.tell("updated", tasks=[task.name for task in workload.tasks[last - workload.groups_per_update : last]])

    trainer.add_callback(Updates())


if __name__ == "__main__":
    told = Events(sys.argv[2])
    told.tell("started")
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        main(read(sys.argv[1]), told, Path(sys.argv[3]), json.loads(sys.argv[4]))
    except BaseException as error:
        told.tell("broke", error=f"{type(error).__name__}: {error}"[:500])
        raise
