"""Generates with optimum: ``python run_optimum.py FOLDER PROMPT STEPS``, both as JSON."""

from __future__ import annotations

import json
import sys

import torch
from optimum.onnxruntime import ORTModelForCausalLM


def main() -> None:
    """Prints the tokens of the prompt and behind it as JSON."""
    folder, prompt, steps = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    model = ORTModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    tokens = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=steps)
    print(json.dumps(tokens[0].tolist()))


if __name__ == "__main__":
    main()
