"""Runs of the command are told apart by what they took, and those that fail are said to."""

from pathlib import Path

import numpy as np
import pytest

from redpebble.models.zoo import save
from redpebble.pruning.examples.command_runs import pruned_by_command
from tests.pruning.dense_networks import branched_network, samples


@pytest.mark.slow
def test_a_run_has_its_report_its_time_and_its_memory(tmp_path: Path) -> None:
    save(branched_network(), tmp_path / "dense.onnx")
    np.savez(tmp_path / "calibration.npz", x=samples(400))
    run = pruned_by_command(tmp_path, ["--sparsity", "0.75", "--rows", "16"])
    assert run.model.exists()
    assert run.report["loss_samples"] == 400
    assert 0.1 < run.gibibytes < 2
    assert run.processor_seconds > 0
    assert "25.0% left" in str(run)
    with pytest.raises(ChildProcessError, match="prune --sparsity 2 failed with 2"):
        pruned_by_command(tmp_path, ["--sparsity", "2"])
