"""tunix's agentic GRPO on the agentic workload, in its own process. Arguments: workload, events, folder, JSON of settings.

Everything is its own: ``GRPOLearner`` with its orchestrator, ``VanillaRollout``, its Llama and its trainer. In its favour:

* Each call of the sampler gets a seed of its own. As it stands, every member of a group samples the same tokens.
* ``budget=constant``: the sampler is always asked for the whole response budget, and what is over the episode's own budget is
  cut off afterwards. As it stands (``budget=exact``) each number of tokens that is left is compiled anew, prefill and decode.
* The end token is put before the world's words, so that the trained tokens are those that the policy saw.

Settings: ``concurrency``; ``budget``; ``off_policy``: batches ahead of the trainer, with a device each for trainer
and sampler, which environment variables provide;
``micro``: groups in a micro-batch; ``on_failure``: ``raise``, or ``zero``, where the environment hides its failure and ends the
episode without a reward. Runs in tunix's environment.
"""

import dataclasses
import faulthandler
import itertools
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from agentic_world import Events, Failed, Letters, Play, Workload, between, opening, read
from flax import nnx
from safetensors.numpy import save_file
from tunix.models.llama3.model import ModelConfig
from tunix.models.llama3.params import create_model_from_safe_tensors
from tunix.rl import rl_cluster
from tunix.rl.agentic.agentic_grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.agentic.environments.base_environment import BaseTaskEnv, EnvStepResult
from tunix.rl.rollout.base_rollout import RolloutConfig

COMPILED = "/jax/core/compile/backend_compile_duration"
PROMPT_LENGTH = 16
"""Prompts are filled up to it, longer ones to the next power of two."""


def main(workload: Workload, events: Events, folder: Path, settings: dict[str, Any]) -> None:
    """All updates."""
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: events.tell("compiled", seconds=seconds) if name == COMPILED else None
    )
    cluster = make_cluster(workload, settings)
    sample_apart(cluster, workload, events, settings["budget"] == "constant")
    algorithm = GRPOConfig(
        num_generations=workload.group_size, max_response_length=workload.response_tokens, beta=0.0, epsilon=0.2,
        loss_agg_mode="token-mean", max_concurrency=settings["concurrency"], off_policy_steps=settings["off_policy"],
    )  # fmt: skip
    learner = GRPOLearner(
        cluster,
        algorithm,
        reward_fns=None,
        chat_parser=Parser(),
        env_class=make_world(workload, events, settings["on_failure"]),
    )
    tell_updates(learner, cluster, workload, events)
    size = workload.groups_per_update
    names = [task.name for task in workload.tasks]
    learner.train([{"prompts": np.array(names[at : at + size])} for at in range(0, len(names), size)])
    events.tell("ended")
    write(cluster.actor_trainer.model, workload, folder)


def make_cluster(workload: Workload, settings: dict[str, Any]) -> rl_cluster.RLCluster:
    """Actor and sampler, on one device or on one each."""
    devices = jax.devices()
    meshes = [
        jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2, devices=[device])
        for device in (devices[0], devices[-1])
    ]
    shape = json.loads((Path(workload.model) / "config.json").read_text())
    config = ModelConfig(
        num_layers=shape["num_hidden_layers"], vocab_size=shape["vocab_size"], embed_dim=shape["hidden_size"],
        hidden_dim=shape["intermediate_size"], num_heads=shape["num_attention_heads"],
        head_dim=shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"],
        num_kv_heads=shape["num_key_value_heads"], rope_theta=10_000, norm_eps=shape["rms_norm_eps"], weight_tying=True,
    )  # fmt: skip
    role = rl_cluster.Role
    adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(workload.learning_rate))
    return rl_cluster.RLCluster(
        actor=create_model_from_safe_tensors(workload.model, config, meshes[0], dtype=jnp.float32),
        tokenizer=Tokenizer(Letters(workload.tokens)),
        cluster_config=rl_cluster.ClusterConfig(
            role_to_mesh={role.ACTOR: meshes[0], role.REFERENCE: meshes[0], role.ROLLOUT: meshes[1]},
            rollout_engine="vanilla",
            training_config=rl_cluster.RLTrainingConfig(
                actor_optimizer=adam,
                eval_every_n_steps=10**6,
                max_steps=workload.updates,
                mini_batch_size=workload.groups_per_update,
                train_micro_batch_size=settings["micro"],
                compute_logps_micro_batch_size=settings["micro"],
            ),
            rollout_config=RolloutConfig(
                max_tokens_to_generate=workload.response_tokens,
                max_prompt_length=PROMPT_LENGTH,
                temperature=1.0,
                top_p=1.0,
                top_k=None,
                return_logprobs=True,
                kv_cache_size=128 + workload.response_tokens,
            ),
        ),
    )


def sample_apart(cluster: rl_cluster.RLCluster, workload: Workload, events: Events, constant: bool) -> None:
    """A seed for each call of the sampler, and perhaps one budget for all."""
    numbers, lock, generate = itertools.count(), threading.Lock(), cluster.rollout.generate

    def apart(prompts: list[str], config: RolloutConfig, **more: Any) -> Any:
        with lock:
            seed = workload.seed * 1_000_003 + next(numbers)
        most = config.max_tokens_to_generate
        budget = workload.response_tokens if constant else most
        found = generate(prompts, dataclasses.replace(config, seed=seed, max_tokens_to_generate=budget), **more)
        events.tell("sampled", tokens=sum(len(ids) for ids in found.tokens))
        if any(len(ids) > most for ids in found.tokens):
            found = dataclasses.replace(
                found, tokens=[ids[:most] for ids in found.tokens], logprobs=[values[:most] for values in found.logprobs]
            )
        return found

    cluster.rollout.generate = apart


def tell_updates(learner: GRPOLearner, cluster: rl_cluster.RLCluster, workload: Workload, events: Events) -> None:
    """Tell when the trainer works, and of which tasks an update was made: examples are trained in the order they were made."""
    made: list[str] = []
    process, update = learner._process_results, cluster.update_actor
    done = cluster.actor_trainer.train_steps

    def processed(trajectories: list[Any], **more: Any) -> Any:
        # Groups are numbered in the order of the tasks.
        made.extend(workload.tasks[int(item.traj["group_id"])].name for item in trajectories[:: workload.group_size])
        return process(trajectories, **more)

    def updated(*arguments: Any, **more: Any) -> None:
        nonlocal done
        with events.span("train"):
            update(*arguments, **more)
            jax.block_until_ready(nnx.state(cluster.actor_trainer.model))
        if cluster.actor_trainer.train_steps > done:
            done = cluster.actor_trainer.train_steps
            given = made[: workload.groups_per_update]
            del made[: workload.groups_per_update]
            events.tell("updated", tasks=given)

    learner._process_results, cluster.update_actor = processed, updated


def make_world(workload: Workload, events: Events, on_failure: str) -> type[BaseTaskEnv]:
    """The environment's class: its constructor is called by tunix."""
    named = {task.name: task for task in workload.tasks}

    class World(BaseTaskEnv):
        def __init__(self, task: Any, **more: Any) -> None:
            super().__init__(task=task, max_steps=workload.turns, **more)
            self._play = Play(workload, named[str(task["prompts"][0])], more["pair_index"], events)
            self._failed = False

        def _initial_observation(self) -> Any:
            return {"prompts": self._play.begin()}

        def _step_impl(self, action: Any) -> EnvStepResult:
            before = self._play.earned
            try:
                seconds, answer = self._play.hear(str(getattr(action, "action", action)))
            except Failed:
                if on_failure == "raise":
                    raise
                self._failed = True
                return EnvStepResult("", 0.0, True, {})
            time.sleep(seconds)
            return EnvStepResult({"prompts": answer or ""}, self._play.earned - before, answer is None, {})

        def close(self) -> None:
            if not self._failed:
                self._play.end()

    return World


class Tokenizer:
    """Letters, as tunix asks for them."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters

    def encode(self, text: str, **_: Any) -> list[int]:
        """Ids."""
        return self._letters.encode(text)

    def decode(self, ids: Any, **_: Any) -> str:
        """Text."""
        return self._letters.decode([int(one) for one in np.asarray(ids).reshape(-1)])

    def bos_id(self) -> int:
        """First token."""
        return self._letters.begin

    def eos_id(self) -> int:
        """Ends a turn."""
        return self._letters.end

    def pad_id(self) -> int:
        """Fills up."""
        return self._letters.pad


class Parser:
    """The chat format."""

    assistant_token = "<|assistant|>"

    def parse(self, messages: list[dict[str, str]], add_generation_prompt: bool = False, is_first_msg: bool = False) -> str:
        """A conversation, or what comes in between, as text."""
        text = ""
        for message in (message for message in messages if message["role"] != "system"):
            content = message["content"]
            if message["role"] == "assistant":
                text += content
            elif is_first_msg and not text:
                text += opening(content)
            else:
                text += "<|end|>" + between(content)
        return text

    def update_assistant_end_tokens(self, tokens: Any) -> tuple[Any, int]:
        """They are as they are."""
        return tokens, 0


def write(model: Any, workload: Workload, folder: Path) -> None:
    """The weights under Hugging Face's names: the way back of tunix's ``llama3/params.py``."""
    found: dict[str, np.ndarray] = {}
    for path, value in nnx.state(model, nnx.Param).flat_state():
        array, name = np.asarray(value[...], np.float32), ".".join(map(str, path))
        if name == "embedder.input_embedding":
            found["model.embed_tokens.weight"] = array
        elif name == "final_norm.w":
            found["model.norm.weight"] = array
        elif name.endswith("o_proj.w"):
            found[f"model.{_named(name)}"] = array.reshape(-1, array.shape[-1]).T
        elif name.endswith(("q_proj.w", "k_proj.w", "v_proj.w")):
            found[f"model.{_named(name)}"] = array.reshape(array.shape[0], -1).T
        elif name.endswith(".kernel"):
            found[f"model.{_named(name)}"] = array.T
        else:
            found[f"model.{_named(name)}"] = array
    folder.mkdir(parents=True)
    save_file({name: np.ascontiguousarray(array) for name, array in found.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text((Path(workload.model) / "config.json").read_text())


def _named(name: str) -> str:
    return name.replace(".attn.", ".self_attn.").removesuffix(".w").removesuffix(".kernel") + ".weight"


if __name__ == "__main__":
    faulthandler.enable()
    told = Events(sys.argv[2])
    told.tell("started")
    try:
        main(read(sys.argv[1]), told, Path(sys.argv[3]), json.loads(sys.argv[4]))
    except BaseException as error:
        told.tell("broke", error=f"{type(error).__name__}: {error}"[:500])
        raise
