#!/bin/sh
# GRPO of Qwen2.5-1.5B-Instruct on a TPU v6e-8, one machine of eight chips: four train, two sample, two hold the reference.
#
#   sh examples/recipes/qwen_on_tpu.sh check FOLDER --topology v6e-8      anywhere; FOLDER has config.json and the tokenizer
#   sh examples/recipes/qwen_on_tpu.sh run Qwen/Qwen2.5-1.5B-Instruct --tasks.train train.jsonl --tasks.heldout heldout.jsonl
#
# Further settings follow; those below are given once, here. docs/tpu.md has the memory it takes, and what was tried of it.
command=$1 model=$2
shift 2
exec ${HEADRACE:-headrace} "$command" grpo --model "$model" "$@" \
  --policy.mesh.fsdp 4 \
  --policy.engine.slots 128 --policy.engine.context-length 1024 --policy.engine.prefill-chunk 128 \
  --rl.steps 200 --rl.groups-per-step 32 --rl.group-size 8 --rl.max-lag 1 --rl.max-concurrency 256 \
  --rl.sampling.max-tokens-per-turn 768 --rl.sampling.max-turns 1 \
  --rl.loss.kl-coefficient 0.001 \
  --rl.trainer.row-length 1024 --rl.trainer.rows-per-microbatch 8 --rl.trainer.remat block \
  --rl.trainer.learning-rate 1e-6 --rl.trainer.warmup-steps 10 \
  --rl.heldout.every 20 \
  --evaluate.max-concurrency 128 --evaluate.sampling.temperature 0 --evaluate.sampling.max-tokens-per-turn 768 \
  --evaluate.sampling.max-turns 1 \
  policy.engine-mesh:mesh-config --policy.engine-mesh.tensor 2 \
  policy.reference-mesh:mesh-config --policy.reference-mesh.fsdp 2 \
  rl.reference:reference-config
