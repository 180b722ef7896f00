"""transformers' ``generate`` on torch as one of the systems: static batches, each of which runs until its longest is done.

Runs in the peers' environment. Arguments: folder of the model, size of a batch, ``arrival`` or ``sorted``. Batches are taken in
the order of arrival; ``sorted`` is what an oracle could do who knows every length beforehand, and is reported only.
"""

import os
import sys
import time

import torch
from script import Measured, answer
from transformers import LlamaForCausalLM
from workload import Request, read, warm_up

PADDING = 2


def generate(model: LlamaForCausalLM, requests: list[Request]) -> list[list[int]]:
    """One batch, padded on the left."""
    width = max(len(request.prompt) for request in requests)
    padding = [width - len(request.prompt) for request in requests]
    ids = torch.tensor([[PADDING] * num + request.prompt for num, request in zip(padding, requests, strict=True)])
    seen = torch.arange(width)[None] >= torch.tensor(padding)[:, None]
    longest = max(request.num_tokens for request in requests)
    made = model.generate(
        input_ids=ids,
        attention_mask=seen.long(),
        max_new_tokens=longest,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=PADDING,
    )
    assert made.shape[1] == width + longest
    return [row[width : width + request.num_tokens].tolist() for row, request in zip(made, requests, strict=True)]


def run(model: LlamaForCausalLM, requests: list[Request], size: int, order: str) -> Measured:
    """All batches, one after the other."""
    at = list(range(len(requests)))
    if order == "sorted":
        at.sort(key=lambda index: requests[index].num_tokens)
    replies: list[list[int]] = [[] for _ in at]
    made, begun, worked = 0, time.perf_counter(), time.process_time()
    for start in range(0, len(at), size):
        batch = at[start : start + size]
        for index, reply in zip(batch, generate(model, [requests[index] for index in batch]), strict=True):
            replies[index] = reply
        made += len(batch) * max(len(replies[index]) for index in batch)
    seconds, worked = time.perf_counter() - begun, time.process_time() - worked
    return Measured(seconds, replies, worked, {"occupancy": sum(map(len, replies)) / made})


def main(folder: str, size: str, order: str) -> None:
    """Load the model, warm up, answer."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None
    with torch.inference_mode():
        run(model, warm_up(read()), int(size), order)
        answer(lambda: run(model, read(), int(size), order))


if __name__ == "__main__":
    main(*sys.argv[1:])
