"""What stands on top of ``export``.

``install`` makes it ``torch.onnx.export``, ``observe`` finds inputs and dynamic dimensions from
real calls, ``compare_file`` and ``verify_file`` set a file beside the module that it came from.
"""
