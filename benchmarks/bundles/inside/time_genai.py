"""Times steps in onnxruntime-genai: ``python time_genai.py PROMPT STEPS RUNS FOLDER...``.

The folders take turns in one process, so that changes on the machine affect all of them alike.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import onnxruntime_genai


def main() -> None:
    """Prints for each folder the seconds of the prompt, those per step, and the tokens as JSON."""
    prompt, steps, runs = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    models = [onnxruntime_genai.Model(folder) for folder in sys.argv[4:]]
    times: list[list[list[float]]] = [[] for _ in models]
    tokens: list[list[int]] = [[] for _ in models]
    for run in range(runs + 1):  # the first one warms up
        for turn in range(len(models)):
            number = (run + turn) % len(models)  # each is first, in the middle and last
            model = models[number]
            measured, tokens[number] = generate(model, prompt, steps)
            times[number].append(measured)
    for measured, made in zip(times, tokens, strict=True):
        prompt_times, step_times = zip(*measured[1:], strict=True)
        print(json.dumps({"prompt": prompt_times, "step": step_times, "tokens": made}))


def generate(model: Any, prompt: list[int], steps: int) -> tuple[list[float], list[int]]:
    """Returns the seconds of the prompt and of a step, and the tokens behind the prompt."""
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
    made = [int(token) for token in generator.get_sequence(0)]
    return [first - begin, (end - first) / (steps - 1)], made[len(prompt) :]


if __name__ == "__main__":
    main()
