"""The trained ResNet-18 of the zoo."""

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

from redpebble.models import resnet18, zoo


def network() -> onnx.ModelProto:
    return onnx_ir.to_proto(zoo.build("resnet18_80"))


def test_what_is_stored_is_small_and_sparse() -> None:
    assert resnet18.WEIGHTS.stat().st_size == resnet18.resnet_record()["stored"]["bytes"] < 4 << 20
    arrays = [onnx.numpy_helper.to_array(one) for one in network().graph.initializer]
    weights = [one for one in arrays if one.ndim == 4]
    assert len(weights) == 20
    assert sum(int((one == 0).sum()) for one in weights) / sum(one.size for one in weights) > 0.79


@pytest.mark.slow
def test_the_card_says_what_onnxruntime_finds() -> None:
    pytest.importorskip("torch")
    from redpebble.pytorch.recipes.resnet18 import read_images

    _, held_out = read_images(0)
    session = onnxruntime.InferenceSession(network().SerializeToString(), providers=["CPUExecutionProvider"])
    images = held_out.images.expand(-1, 3, -1, -1).numpy()
    logits = np.concatenate([session.run(None, {"images": part})[0] for part in np.split(images, 6)])
    right = float((logits.argmax(1) == held_out.labels.numpy()).mean())
    assert right == pytest.approx(resnet18.resnet_record()["stored"]["accuracy"], abs=0.002)
