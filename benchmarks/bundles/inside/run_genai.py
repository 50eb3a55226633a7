"""Generates in onnxruntime-genai: ``python run_genai.py FOLDER PROMPT STEPS``, both as JSON."""

from __future__ import annotations

import json
import sys

import onnxruntime_genai


def main() -> None:
    """Prints the tokens of the prompt and behind it as JSON."""
    folder, prompt, steps = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    model = onnxruntime_genai.Model(folder)
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(max_length=len(prompt) + steps, do_sample=False)
    generator = onnxruntime_genai.Generator(model, parameters)
    generator.append_tokens([prompt])
    while not generator.is_done():
        generator.generate_next_token()
    print(json.dumps([int(token) for token in generator.get_sequence(0)]))


if __name__ == "__main__":
    main()
