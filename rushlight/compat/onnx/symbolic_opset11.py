"""PyTorch's `torch.onnx.symbolic_opset11`: functions of its exporter, of which there is none."""
