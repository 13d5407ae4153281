"""The page of a pruned model: its layers, and a picture of every method's quality against time."""

import re

from redpebble.pruning.loss_estimates import LossEstimate
from redpebble.pruning.report import MethodTrial, PrunedLayer, PruneReport
from redpebble.pruning.runs.timing import MeasuredTimes
from redpebble.tools.pruning_commands import prune_page

TRIALS = tuple(
    MethodTrial(method, density, 1000 * density, quality - 0.1 / density)
    for method, quality in (("admm", 1.1), ("magnitude <b>", 0.9))
    for density in (0.5, 0.3, 0.15)
)
LAYERS = (
    PrunedLayer("in/MatMul", 64, 512, 32768, 0.0, 23.8, 23.8),
    PrunedLayer("<deep>", 512, 512, 65536, 0.012, 190.0, 68.0, MeasuredTimes(200.0, 75.5)),
)
ESTIMATE = LossEstimate(0.00001, (0.0, 0.0234), 64)
REPORT = PruneReport(LAYERS, ESTIMATE, "x 32x64", 32, 1, MeasuredTimes(900.0, 400.0), 20.0, TRIALS)


def test_a_page_has_times_of_layers_and_a_dot_for_each_trial_the_dense_model_and_the_result() -> None:
    page = prune_page("digits.onnx", REPORT, "redpebble prune digits.onnx")
    for text in ("2.2x", "0.250", "1.20%", "75.5 µs", "68.0 µs", "&lt;deep&gt;", "10.2", "for x 32x64 on 1 thread"):
        assert text in page
    # one picture for wide screens and one for phones
    assert len(re.findall("<circle", page)) == 2 * (len(TRIALS) + 2)
    assert len(re.findall("<polyline", page)) == 2 * 2
    assert "this model" in page
    assert "<deep>" not in page
    # a loss that rounds to nothing is not said to be none
    assert "0.00 to 2.34% with 99% confidence" in page
    assert "64 samples are few" in page
    assert not re.search(r"\b100 ?%|quality 1", re.sub("<style>.*</style>", "", page, flags=re.DOTALL))
    assert "<b>" not in re.sub(r"<dd><b>[^<]*</b>", "", page)


def test_without_trials_there_is_no_picture() -> None:
    unknown = LossEstimate(0.0, None, 0)
    page = prune_page("m", PruneReport(LAYERS, unknown, "x 1x64", 1, 2, MeasuredTimes(2.0, 1.0), 0.0), "")
    assert "<svg" not in page
    assert "2 threads" in page
