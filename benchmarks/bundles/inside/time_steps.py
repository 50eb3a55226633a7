"""Times steps of generation: ``python time_steps.py PROGRAM PROMPT STEPS RUNS FOLDER...``.

The program is genai or optimum. The folders take turns in one process, so that changes on the
machine affect all of them alike.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Generate = Callable[[list[int], int], tuple[float, float, list[int]]]
"""Returns the seconds of a prompt and of a step behind it, and the tokens behind the prompt."""


def main() -> None:
    """Prints for each folder the seconds of the prompt, those per step, and the tokens as JSON."""
    program, prompt, steps, runs = sys.argv[1], json.loads(sys.argv[2]), *map(int, sys.argv[3:5])
    ways = [PROGRAMS[program](folder) for folder in sys.argv[5:]]
    found: list[dict[str, Any]] = [{"prompt": [], "step": []} for _ in ways]
    for run in range(runs + 1):  # the first one warms up
        for turn in range(len(ways)):
            number = (run + turn) % len(ways)  # each is first, in the middle and last
            first, each, tokens = ways[number](prompt, steps)
            found[number]["tokens"] = tokens
            if run:
                found[number]["prompt"].append(first)
                found[number]["step"].append(each)
    for row in found:
        print(json.dumps(row))


def in_genai(folder: str) -> Generate:
    """Loads a folder in onnxruntime-genai."""
    import onnxruntime_genai

    model = onnxruntime_genai.Model(folder)

    def generate(prompt: list[int], steps: int) -> tuple[float, float, list[int]]:
        parameters = onnxruntime_genai.GeneratorParams(model)
        length = len(prompt) + steps
        # As many steps for each model: none ends a text early.
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = onnxruntime_genai.Generator(model, parameters)
        begin = time.perf_counter()
        generator.append_tokens([prompt])
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(steps - 1):
            generator.generate_next_token()
        end = time.perf_counter()
        tokens = [int(token) for token in generator.get_sequence(0)]
        return first - begin, (end - first) / (steps - 1), tokens[len(prompt) :]

    return generate


def in_optimum(folder: str) -> Generate:
    """Loads a folder in optimum, whose ``generate`` makes all steps at once."""
    import torch
    from optimum.onnxruntime import ORTModelForCausalLM

    model = ORTModelForCausalLM.from_pretrained(folder)

    def make(ids: Any, count: int) -> tuple[float, list[int]]:
        counts = {"min_new_tokens": count, "max_new_tokens": count, "do_sample": False}
        begin = time.perf_counter()
        made = model.generate(ids, attention_mask=torch.ones_like(ids), **counts)
        return time.perf_counter() - begin, made[0, ids.shape[1] :].tolist()

    def generate(prompt: list[int], steps: int) -> tuple[float, float, list[int]]:
        ids = torch.tensor([prompt])
        first, _ = make(ids, 1)
        whole, tokens = make(ids, steps)
        return first, (whole - first) / (steps - 1), tokens

    return generate


PROGRAMS: dict[str, Callable[[str], Generate]] = {"genai": in_genai, "optimum": in_optimum}


if __name__ == "__main__":
    main()
