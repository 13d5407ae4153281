"""The runtime of a compiled network: what a call does with sizes, rows and threads, emitted for any host.

A network is a table of words (`table`). For a call its `Frame` is filled: sizes are evaluated (`sizes`), each step is
split over threads (`split`), and the steps run one after the other (`steps`). The module of a host holds this code and
adds three functions of its own: `relax (looks)`, which a thread calls while it waits, `parallel (frame, function,
memory, workers) -> status`, which has threads call `function (memory, number)`, and `report (frame, problem, left,
right) -> status` for sizes that do not fit. Hosts are this process (`pool`) and onnxruntime (`ort/native`).
"""
