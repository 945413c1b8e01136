"""A model as a file, as ONNX, as tables."""
