"""Data becomes batches that fit the model."""

import numpy as np
import onnx

from redpebble.pruning.runs.calibration_data import batches_of

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    encoder (int64[batch, tokens] ids, int64[batch, tokens] attention_mask) => (int64[batch, tokens] y) {
        y = Mul(ids, attention_mask)
    }"""


def test_texts_are_cut_to_their_lengths() -> None:
    graph = onnx.parser.parse_model(TEXT).graph
    lengths = np.array([3, 5, 3, 4, 3])
    mask = (np.arange(6) < lengths[:, np.newaxis]).astype(np.int64)
    ids = np.arange(1, 31).reshape(5, 6)
    batches = batches_of(graph, {"ids": ids, "attention_mask": mask})
    assert [batch["ids"].shape for batch in batches] == [(3, 3), (1, 4), (1, 5)]
    assert batches[0]["ids"].tolist() == ids[[0, 2, 4], :3].tolist()
    assert all(batch["attention_mask"].all() for batch in batches)
    # padding in front, or of a size that the model states, stays
    (turned,) = batches_of(graph, {"ids": ids, "attention_mask": mask[:, ::-1]})
    assert turned["ids"].shape == (5, 6)
    fixed = onnx.parser.parse_model(TEXT.replace("tokens", "6")).graph
    (whole,) = batches_of(fixed, {"ids": ids, "attention_mask": mask})
    assert whole["ids"].shape == (5, 6)


def test_texts_run_few_at_once_where_they_are_long() -> None:
    graph = onnx.parser.parse_model(TEXT).graph
    ids, mask = np.ones((20, 300), np.int64), np.ones((20, 300), np.int64)
    for given in (mask, mask[:, ::-1] * (np.arange(300) > 0)):
        batches = batches_of(graph, {"ids": ids, "attention_mask": given})
        assert [len(batch["ids"]) for batch in batches] == [3] * 6 + [2]
