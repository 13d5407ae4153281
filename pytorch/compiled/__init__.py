"""Modules of torch that run sessions: `redpebble.torch.compile`, and a backend of `torch.compile`.

```
onnx_bytes        a module as ONNX, by torch's exporter
tensor_session    a session from tensors to tensors
compile           `compile`, and the module that it returns
graph_part        a graph of dynamo, run by a session where that is right and faster
backend           `torch.compile(model, backend="redpebble")`
```
"""
