"""Measures how much of PyTorch is right in ONNX Runtime after an export, operator by operator.

``python -m conformance`` exports the sample inputs of PyTorch's own operator database
(``torch.testing._internal``) one at a time, runs each model in ONNX Runtime and compares value,
data type and shape with eager PyTorch. The results are stored in ``conformance/results``.

* ``samples``: chooses the samples and turns each into a module with tensor inputs;
* ``exporters``: onnx_aot and torch.onnx;
* ``equivalence``: operators whose answer is not unique, and the properties that are compared;
* ``outcome``: judges one sample;
* ``parts``: rows of a sweep, of which a sample that hangs or crashes costs no other;
* ``cases``: judges the samples of an operator in such a row;
* ``report``: the results file and the summary.
"""
