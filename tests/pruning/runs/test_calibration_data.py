"""Data becomes batches that fit the model."""

import numpy as np
import onnx

from redpebble.pruning.runs.calibration_data import batches_of, split_batches

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


def test_one_of_eight_samples_is_held_out() -> None:
    graph = onnx.parser.parse_model(TEXT).graph
    ids = np.arange(200 * 3).reshape(200, 3)
    batches = [
        {"ids": ids[start : start + 30], "attention_mask": ids[start : start + 30]} for start in range(0, 200, 30)
    ]
    fitted, judged = split_batches(graph, batches)[1:3]
    counts = [[len(batch["ids"]) for batch in some] for some in (fitted, judged)]
    assert counts == [[27, 26, 26, 26, 27, 26, 17], [3, 4, 4, 4, 3, 4, 3]]
    firsts = {int(first) for batch in (*fitted, *judged) for first in batch["ids"][:, 0]}
    assert firsts == set(ids[:, 0].tolist())
    is_held_out = split_batches(graph, batches).is_held_out
    assert np.array_equal(np.concatenate([batch["ids"] for batch in judged]), ids[is_held_out])


def test_batches_of_a_size_that_the_model_states_are_held_out_whole_and_few_samples_not_at_all() -> None:
    fixed = onnx.parser.parse_model(TEXT.replace("batch", "10")).graph
    ids = np.arange(170 * 3).reshape(170, 3)
    batches = [
        {"ids": ids[start : start + 10], "attention_mask": ids[start : start + 10]} for start in range(0, 170, 10)
    ]
    whole, fitted, judged, is_held_out = split_batches(fixed, batches)
    assert (len(whole), len(fitted)) == (17, 15)
    assert [batch["ids"][0, 0] for batch in judged] == [210, 450]
    assert is_held_out.nonzero()[0].tolist() == [*range(70, 80), *range(150, 160)]
    few = split_batches(fixed, batches[:6])
    assert few.judged == few.fitted == batches[:6]
    assert not few.is_held_out.any()
