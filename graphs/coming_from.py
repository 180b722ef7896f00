"""Settings of other trainers by the name of ours: the data of docs/coming_from.md, and of what is said of an unknown setting.

Tunix: the configs of its agentic learner and its flags. veRL: keys of its Hydra config, without ``actor_rollout_ref`` where a
section follows. TRL: ``GRPOConfig``. Others: OpenRLHF (o) and prime-rl (p), where sure.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Counterpart:
    """A setting, or a choice that others make by one.

    Names of several settings stand with a space between.

    Attributes:
        ours: settings of ``headrace run grpo``, as on the command line; none where there is nothing to set.
        tunix: theirs.
        verl: theirs.
        trl: theirs.
        others: theirs, each with the letter of whose it is.
        differs: what is not the same; empty for nothing.
    """

    ours: str
    tunix: str = ""
    verl: str = ""
    trl: str = ""
    others: str = ""
    differs: str = ""

    @property
    def theirs(self) -> Sequence[str]:
        """All names that others give it."""
        return [name.partition("(")[0] for name in f"{self.tunix} {self.verl} {self.trl} {self.others}".split()]


Section = tuple[str, Sequence[Counterpart]]

SECTIONS: Sequence[Section] = (
    (
        "Steps, groups and staleness",
        (
            Counterpart("rl.group_size", "num_generations", "rollout.n", "num_generations",
                        "n_samples_per_prompt(o) rollouts_per_example(p)"),
            Counterpart("rl.groups_per_step", "batch_size", "data.train_batch_size", "generation_batch_size",
                        "rollout_batch_size(o)",
                        "counts tasks, as most do; TRL's counts completions: divide by num_generations"),
            Counterpart("rl.steps", "max_steps", "trainer.total_training_steps", "max_steps", "max_steps(p)",
                        "steps of groups; several updates in one are one step"),
            Counterpart("rl.steps", "", "trainer.total_epochs", "num_train_epochs", "num_episodes(o)",
                        "there is no number of epochs: steps are tasks times epochs over groups_per_step"),
            Counterpart("rl.max_lag rl.late", "off_policy_steps", "max_off_policy_threshold staleness_threshold",
                        "max_staleness", "max_off_policy_steps(p) max_async_level(p)",
                        "a hard bound, in versions, of every trained group, never a share of a batch; 0 is strictly on-policy "
                        "and still overlaps; late says whether groups that would be too old are waited for or dropped"),
            Counterpart("rl.max_concurrency", "max_concurrency", "", "max_inflight_tasks", "",
                        "episodes at once; any number goes with any lag"),
            Counterpart("rl.trainer.num_minibatches", "mini_batch_size", "actor.ppo_mini_batch_size", "steps_per_generation",
                        "train_batch_size(o)",
                        "how many updates a pass has; others give the size of one, TRL its micro-batches"),
            Counterpart("rl.trainer.num_epochs", "num_iterations", "actor.ppo_epochs", "num_iterations", "max_epochs(o)"),
            Counterpart("rl.trainer.rows_per_microbatch", "train_micro_batch_size", "actor.ppo_micro_batch_size_per_gpu",
                        "per_device_train_batch_size", "micro_train_batch_size(o)",
                        "rows, packed with whole episodes, over all devices; changes memory and no result"),
            Counterpart("", "gradient_accumulation_steps", "", "gradient_accumulation_steps", "",
                        "nothing to set: micro-batches are summed until the groups of the step are used up"),
            Counterpart("rl.trainer.row_length", "max_seq_token_per_tpu", "actor.ppo_max_token_len_per_gpu", "", "seq_len(p)",
                        "tokens of a packed row; the longest episode must fit"),
        ),
    ),
    (
        "Sampling and episodes",
        (
            Counterpart("rl.sampling.temperature", "temperature", "rollout.temperature", "temperature", "",
                        "above 0: the trainer scores what was sampled from"),
            Counterpart("evaluate.sampling.top_p evaluate.sampling.top_k evaluate.sampling.min_p", "top_p top_k",
                        "rollout.top_p rollout.top_k", "top_p top_k min_p", "",
                        "refused in training, whose log-probabilities are of all tokens; evaluations may truncate"),
            Counterpart("rl.sampling.max_tokens_per_episode", "max_response_length", "data.max_response_length",
                        "max_completion_length", "generate_max_len(o)",
                        "sampled tokens of all turns; results of tools are not in it"),
            Counterpart("rl.sampling.max_tokens_per_turn", "max_tokens_to_generate", "", "", "",
                        "of one turn; Tunix wants it equal to max_response_length"),
            Counterpart("policy.engine.context_length", "max_prompt_length kv_cache_size",
                        "data.max_prompt_length rollout.max_model_len", "max_prompt_length vllm_max_model_length",
                        "prompt_max_len(o)",
                        "prompt and all turns together; a prompt that does not fit is refused before the run, never cut"),
            Counterpart("rl.sampling.max_turns", "", "rollout.multi_turn.max_assistant_turns", "max_tool_calling_iterations"),
            Counterpart("policy.engine.slots", "rollout_vllm_max_num_seqs", "rollout.max_num_seqs", "", "",
                        "requests that decode at once, a fixed shape"),
            Counterpart("rl.limits.episode_s", "episode_timeout", "", "", "",
                        "None by default, with limits of each step of an episode beside it"),
            Counterpart("policy.system", "system_prompt"),
            Counterpart("seed", "", "", "seed", "", "one number; each part's seed follows from it, unless it is given"),
            Counterpart("rl.seed", "", "data.seed", "data_seed", "", "order of the tasks, and nothing else"),
        ),
    ),
    (
        "Loss",
        (
            Counterpart("rl.loss.clip_low", "epsilon", "actor.clip_ratio actor.clip_ratio_low", "epsilon", "eps_clip(o)"),
            Counterpart("rl.loss.clip_high", "epsilon_high", "actor.clip_ratio_high", "epsilon_high", "eps_clip_low_high(o)"),
            Counterpart("rl.loss.dual_clip", "epsilon_c", "actor.clip_ratio_c", "delta", "",
                        "TRL's delta bounds the ratio whatever the sign of the advantage"),
            Counterpart("rl.loss.ratio", "loss_algo", "actor.policy_loss.loss_mode", "importance_sampling_level", "",
                        "token, sequence (GSPO) or both"),
            Counterpart("rl.loss.aggregation", "loss_agg_mode", "actor.loss_agg_mode", "loss_type", "",
                        "token is token-mean, dapo; sequence is seq-mean-token-mean, grpo; constant is "
                        "seq-mean-token-sum-norm, dr_grpo. Means are over the whole step, not over a micro-batch"),
            Counterpart("rl.loss.kl_coefficient", "beta", "actor.kl_loss_coef", "beta", "init_kl_coef(o)",
                        "0 by default, as TRL; Tunix has 0.04. Wants rl.reference:reference-config at the end of the line"),
            Counterpart("rl.loss.kl_estimator", "kl_loss_mode", "actor.kl_loss_type", "", "kl_estimator(o)",
                        "k3 is low_var_kl; k1 carries the gradient of k2"),
            Counterpart("rl.advantages.kl_coefficient", "", "algorithm.kl_ctrl.kl_coef algorithm.use_kl_in_reward", "", "",
                        "KL off the reward, token by token"),
            Counterpart("rl.loss.entropy_coefficient", "", "actor.entropy_coeff", "", "entropy_loss_coef(o)"),
            Counterpart("rl.loss.correction rl.loss.correction_cap", "sampler_is sampler_is_threshold",
                        "algorithm.rollout_correction.rollout_is algorithm.rollout_correction.rollout_is_threshold",
                        "vllm_importance_sampling_correction vllm_importance_sampling_cap", "",
                        "the ratio is against what the engine recorded already, so none is needed unless rl.loss.against is "
                        "proximal"),
            Counterpart("rl.loss.against", "use_rollout_logps", "algorithm.rollout_correction.bypass_mode", "", "",
                        "behaviour: the engine's own log-probabilities; proximal: those of the step's first weights"),
            Counterpart("rl.loss.value_clip", "clip_range_value", "critic.cliprange_value", "", "value_clip(o)"),
        ),
    ),
    (
        "Advantages and rewards",
        (
            Counterpart("rl.advantages.rule", "advantage_estimator", "algorithm.adv_estimator", "", "advantage_estimator(o)",
                        "--algorithm NAME sets rule and loss together"),
            Counterpart("rl.advantages.scale", "", "algorithm.norm_adv_by_std_in_grpo", "scale_rewards", "",
                        "False is Dr. GRPO"),
            Counterpart("rl.advantages.filter_no_signal", "degenerate_group_masking", "algorithm.filter_groups.enable", "",
                        "dynamic_filtering(o)", "filtered groups are replaced within the step"),
            Counterpart("rl.advantages.overlong", "overlong_filter", "", "mask_truncated_completions", "",
                        "mask takes cut members out of the statistics of their group too"),
            Counterpart("rl.overlong_buffer", "overlong_buffer", "reward_model.overlong_buffer.len", "", "",
                        "tokens; Tunix measures characters"),
            Counterpart("rl.advantages.discount", "gamma", "algorithm.gamma", "", "gamma(o)"),
            Counterpart("rl.advantages.gae_lambda", "gae_lambda", "algorithm.lam", "", "lambd(o)"),
            Counterpart("", "reward_fns reward_functions", "custom_reward_function.path", "reward_weights reward_funcs", "",
                        "rewards with weights are named in Python, in the parts of a program"),
        ),
    ),
    (
        "Optimizer",
        (
            Counterpart("rl.trainer.learning_rate", "learning_rate", "actor.optim.lr", "learning_rate",
                        "actor_learning_rate(o)"),
            Counterpart("rl.trainer.warmup_steps", "warmup_steps warmup_ratio", "actor.optim.lr_warmup_steps",
                        "warmup_steps warmup_ratio", "lr_warmup_ratio(o)", "updates, never a share"),
            Counterpart("rl.trainer.schedule rl.trainer.decay_steps", "schedule_type decay_steps",
                        "actor.optim.lr_scheduler_type", "lr_scheduler_type", "lr_scheduler(o)"),
            Counterpart("rl.trainer.weight_decay", "weight_decay", "actor.optim.weight_decay", "weight_decay", "l2(o)"),
            Counterpart("rl.trainer.beta1 rl.trainer.beta2 rl.trainer.epsilon", "b1 b2", "actor.optim.betas",
                        "adam_beta1 adam_beta2 adam_epsilon", "adam_betas(o)", "beta2 is 0.95 by default"),
            Counterpart("rl.trainer.max_grad_norm", "max_grad_norm", "actor.grad_clip", "max_grad_norm", "max_norm(o)",
                        "Tunix has the name and does not read it"),
        ),
    ),
    (
        "Model and devices",
        (
            Counterpart("policy.model", "model_id model_name", "model.path", "model_name_or_path", "pretrain(o)"),
            Counterpart("policy.revision", "", "", "model_revision"),
            Counterpart("policy.lora.rank policy.lora.alpha policy.lora.modules",
                        "lora_config.rank lora_config.alpha lora_config.module_path",
                        "model.lora_rank model.lora_alpha model.target_modules",
                        "lora_r lora_alpha lora_target_modules use_peft", "lora_rank(o)",
                        "after policy.lora:lora-config at the end of the line"),
            Counterpart("policy.mesh.data policy.mesh.fsdp policy.mesh.tensor", "role_to_mesh mesh.shape",
                        "actor.fsdp_config.fsdp_size trainer.n_gpus_per_node", "", "actor_num_gpus_per_node(o)",
                        "the trainer's devices; the engine shares them unless it has its own"),
            Counterpart("policy.engine_mesh.tensor", "tensor_parallel_size rollout_engine",
                        "rollout.tensor_model_parallel_size", "vllm_tensor_parallel_size use_vllm vllm_mode",
                        "vllm_tensor_parallel_size(o)",
                        "after policy.engine-mesh:mesh-config at the end of the line; the engine is ours"),
            Counterpart("rl.trainer.remat", "", "model.enable_gradient_checkpointing", "gradient_checkpointing",
                        "gradient_checkpointing(o)"),
            Counterpart("rl.trainer.optimizer_memory", "offload_to_cpu", "actor.fsdp_config.optimizer_offload", "",
                        "adam_offload(o)", "the state alone moves; weights stay"),
            Counterpart("policy.engine.dtype", "data_type", "rollout.dtype", "bf16", "bf16(o)",
                        "of the engine's copy; the trainer takes the type of the checkpoint, with float32 behind it"),
            Counterpart("rl.reference.follow.every rl.reference.follow.decay", "", "",
                        "sync_ref_model ref_model_sync_steps ref_model_mixup_alpha", "", "decay is one minus TRL's alpha"),
        ),
    ),
    (
        "Data, evaluation and the run",
        (
            Counterpart("tasks.train", "dataset_name data_module", "data.train_files", "dataset_name", "prompt_data(o)",
                        "JSONL, Parquet or a saved data set"),
            Counterpart("tasks.heldout", "eval_dataset", "data.val_files", "eval_dataset", "eval_dataset(o)"),
            Counterpart("rl.heldout.every", "eval_every_n_steps", "trainer.test_freq", "eval_steps", "eval_steps(o)",
                        "pinned to one version, beside training"),
            Counterpart("options.checkpoint_every", "save_interval_steps checkpointing_options", "trainer.save_freq",
                        "save_steps", "save_steps(o)", "a commit of all of the run, not of weights alone"),
            Counterpart("options.keep", "max_to_keep", "trainer.max_actor_ckpt_to_keep", "save_total_limit",
                        "max_ckpt_num(o)"),
            Counterpart("options.folder options.name", "checkpoint_root_directory",
                        "trainer.default_local_dir trainer.experiment_name", "output_dir run_name",
                        "save_path(o) ckpt_path(o)"),
            Counterpart("options.loggers", "metrics_logging_options", "trainer.logger", "report_to", "use_wandb(o)",
                        "metrics.jsonl is written whatever is chosen"),
            Counterpart("options.profile", "profiler_options", "", "", "", "steps as 10:12; run.pftrace is another thing"),
            Counterpart("options.resume", "", "trainer.resume_mode", "resume_from_checkpoint", "load_checkpoint(o)",
                        "headrace resume RUN goes on with one; auto is for schedulers"),
        ),
    ),
)  # fmt: skip
"""By what they are about."""


def counterparts_of(name: str) -> Sequence[Counterpart]:
    """What a setting of another trainer is here; nothing where none of them has it.

    Args:
        name: as they write it, with or without dashes in front (a plus, as Hydra adds with), and with or without its sections.
    """
    wanted = name.lstrip("-+").partition("=")[0].replace("-", "_").lower().removeprefix("actor_rollout_ref.")
    rows = [row for _, section in SECTIONS for row in section]
    whole = [row for row in rows if wanted in row.theirs]
    last = wanted.rpartition(".")[2]
    return whole or [row for row in rows if last in (one.rpartition(".")[2] for one in row.theirs)]


def flag(setting: str) -> str:
    """A setting as it is typed."""
    return f"--{setting.replace('_', '-')}"


def told_of(name: str) -> str | None:
    """A sentence on a setting of another trainer; ``None`` where it is none."""
    rows = counterparts_of(name)
    if not rows:
        return None
    ours = list(dict.fromkeys(setting for row in rows for setting in row.ours.split()))
    differs = "; ".join(dict.fromkeys(row.differs for row in rows if row.differs))
    here = f"is {' and '.join(map(flag, ours))} here" if ours else "is not set here"
    return f"{name.partition('=')[0]} {here}" + (f": {differs}" if differs else "")


def as_tables() -> str:
    """The tables of docs/coming_from.md."""
    return "\n\n".join(f"## {title}\n\n{_table(rows)}" for title, rows in SECTIONS)


def _table(rows: Sequence[Counterpart]) -> str:
    lines = ["| here | Tunix | veRL | TRL | others | what differs |", "|---|---|---|---|---|---|"]
    for row in rows:
        ours = ", ".join(f"`{flag(name)}`" for name in row.ours.split()) or "none"
        theirs = [_quoted(names) for names in (row.tunix, row.verl, row.trl, row.others)]
        lines.append(f"| {' | '.join([ours, *theirs, row.differs])} |")
    return "\n".join(lines)


def _quoted(names: str) -> str:
    parts = (name.partition("(") for name in names.split())
    return ", ".join(f"`{name}`" + (f" ({whose}" if whose else "") for name, _, whose in parts)
