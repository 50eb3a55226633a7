"""Tools on top of ``export``.

``install`` makes it ``torch.onnx.export``, ``observe`` finds inputs and dynamic dimensions from
real calls, ``compare_file`` and ``verify_file`` compare a file with the module that it came from,
and ``subjects`` builds the model that a text names.
"""
