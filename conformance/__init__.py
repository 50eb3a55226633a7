"""How much of PyTorch is right in ONNX Runtime after an export: measured, operator by operator.

``python -m conformance`` exports the sample inputs of PyTorch's own operator database
(``torch.testing._internal``) one at a time, runs each model in ONNX Runtime and compares value,
data type and shape with eager PyTorch. What came out is kept in ``conformance/results``.

* ``samples``: which samples are taken, and how one becomes a module with tensor inputs;
* ``exporters``: onnx_aot, and torch.onnx beside it;
* ``equivalence``: operators whose answer is not unique, and what of it is compared;
* ``outcome``: what one sample comes to;
* ``workers``: processes that are killed when a sample hangs and replaced when it crashes;
* ``report``: the results file and the summary.
"""
