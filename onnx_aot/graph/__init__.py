"""Parts of ONNX graphs that every stage shares."""
