"""Times steps in optimum: ``python time_optimum.py PROMPT STEPS RUNS FOLDER...``.

The folders take turns in one process, so that changes on the machine affect all of them alike.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from optimum.onnxruntime import ORTModelForCausalLM


def main() -> None:
    """Prints for each folder the seconds of the prompt, those per step, and the tokens as JSON."""
    prompt, steps, runs = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    models = [ORTModelForCausalLM.from_pretrained(folder) for folder in sys.argv[4:]]
    times: list[list[list[float]]] = [[] for _ in models]
    tokens: list[list[int]] = [[] for _ in models]
    for run in range(runs + 1):  # the first one warms up
        for turn in range(len(models)):
            number = (run + turn) % len(models)  # each is first, in the middle and last
            model = models[number]
            first, _ = generate(model, prompt, 1)
            whole, tokens[number] = generate(model, prompt, steps)
            times[number].append([first, (whole - first) / (steps - 1)])
    for measured, made in zip(times, tokens, strict=True):
        prompt_times, step_times = zip(*measured[1:], strict=True)
        print(json.dumps({"prompt": prompt_times, "step": step_times, "tokens": made}))


def generate(model: Any, prompt: list[int], steps: int) -> tuple[float, list[int]]:
    """Returns the seconds of the prompt and a number of steps, and the tokens behind the prompt."""
    ids = torch.tensor([prompt])
    begin = time.perf_counter()
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=steps,
        max_new_tokens=steps,
    )
    return time.perf_counter() - begin, made[0, len(prompt) :].tolist()


if __name__ == "__main__":
    main()
