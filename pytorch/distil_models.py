"""`redpebble.torch.distil_model`: ONNX in and out, trained in torch: what `redpebble distil` does.

```
two files  ->  modules of torch  ->  distil under the masks of the zeros  ->  the file with other weights
               imported/             distil.py                                judged by onnxruntime
```
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import onnx_ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..export.save_model import save_model
from ..frontend.reading.model_source import Source
from ..pruning.intervals import Interval, difference_interval
from ..pruning.metrics import Answers, Metric, metric_of, quality
from ..pruning.task_quality import floating, outputs_of
from .batches import Batch, Module, Output, Run, device_of, moved
from .distil import distil
from .history import History
from .imported.data import LABELS, Samples
from .imported.module import OnnxModule
from .layers import prunable_weights
from .losses import Hidden, Weighed

Arrays = Mapping[str, NDArray[Any]]

LOOKS: Final = 10
"""Times that quality is measured during a training."""


@dataclass(frozen=True)
class DistilledReport:
    """The course of a training, and quality on samples that were held out, by onnxruntime."""

    history: History
    before: Mapping[str, float]
    after: Mapping[str, float]
    teacher: Mapping[str, float]
    """The quality of the teacher; the best there is where it is itself the measure."""
    is_held_out: bool
    samples: int
    """Samples that quality is of."""
    parameters: int
    connections: int
    """Weights of layers, and those that are not zero."""
    speedup: float | None
    """Times as fast as dense layers, predicted; None where no layer is priced."""
    interval: Interval | None
    """95 % of what the first number gained; None of too few samples."""
    difference: float
    """The largest difference of torch's outputs from onnxruntime's, over the largest output."""

    @property
    def parameter_efficiency(self) -> float:
        """The first number of quality a million weights that are left."""
        return _first(self.after) / max(1e-6, self.connections / 1e6)

    @property
    def dense_efficiency(self) -> float:
        """The same of the teacher."""
        return _first(self.teacher) / max(1e-6, self.parameters / 1e6)

    def __str__(self) -> str:
        """Return a line."""
        moved = ", ".join(f"{name} {self.before[name]:.4g} -> {value:.4g}" for name, value in self.after.items())
        speed = "" if self.speedup is None else f", layers {self.speedup:.2f}x as fast (predicted)"
        sure = "" if self.interval is None else f" (gain {self.interval} with 95 %)"
        where = f"{self.samples} held-out samples" if self.is_held_out else f"the {self.samples} samples trained on"
        kept = "" if self.history.kept else "; nothing was gained, the weights are those from before"
        return f"{moved}{sure} on {where}{speed}; {self.history.steps} steps, {self.history.seconds:.0f} s{kept}"


@dataclass(frozen=True)
class Distilled:
    """A model with other weights, and how it came about."""

    model: onnx_ir.Model
    report: DistilledReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model.

        Raises:
            OSError: it cannot be written.
        """
        save_model(self.model, path)


class Length(NamedTuple):
    """The length of a training: steps or seconds where they are not None, or else epochs."""

    steps: int | None = None
    seconds: float | None = None
    epochs: int = 3


def distil_model(
    student: Source,
    teacher: Source | None,
    data: Arrays,
    *,
    validate: Arrays | None = None,
    labels: str | None = None,
    losses: Sequence[Weighed] | None = None,
    metric: str = "quality",
    length: Length = Length(),  # noqa: B008
    batch: int = 32,
    rate: float = 1e-3,
    patience: int | None = 5,
    checkpoint: str | os.PathLike[str] | None = None,
    rows: int | None = None,
    seed: int = 0,
    device: str | Literal["auto"] = "auto",
    progress: bool = True,
) -> Distilled:
    """Train what a sparse ONNX model has left to answer as a dense one does, and return it with these weights.

    `data` has an array for each input by its name, samples along the first axis; `labels` names one that is none. An
    eighth is held out for quality, if `validate` has no other samples: of other sources, best. Zeros stay, and so do
    names, codes and scales of quantized weights, and all that is no weight. `metric` decides which weights are kept,
    and when `patience` measurements without gain end the training.

    Losses are, by default, `embedding` of hidden states and embeddings, `logits` of such, and else `outputs`, each with
    `hidden` states; `labels` besides, where there are any.

    Raises:
        ModelError: a model is unreadable, or has an operator that is not covered.
        ValueError: data or options do not fit.
    """
    measure = metric_of(metric)
    ours = OnnxModule(student)
    theirs = None if teacher is None else OnnxModule(teacher)
    if theirs is not None and list(theirs.inputs) != list(ours.inputs):
        raise ValueError(f"teacher: expected inputs {', '.join(ours.inputs)}, got {', '.join(theirs.inputs)}")
    if theirs is None and labels is None:
        raise ValueError("expected a teacher or labels, got neither")
    whole = _samples(ours, data, labels, batch)
    fitted, judged = whole.split(seed) if validate is None else (whole, _samples(ours, validate, labels, batch))
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    for one in (ours, theirs):
        if one is not None:
            one.to(place).eval()
    judge = _Judge(judged, measure, ours if theirs is None else theirs)
    first = ours.updated()
    before = judge.of_model(first)
    start = {name: value.clone() for name, value in ours.state_dict().items()}
    run = Run([_inputs(next(fitted.batches(np.random.default_rng(seed))))], _called)
    speed = _speed(ours, run, rows)
    count = len(fitted.orders(np.random.default_rng(0)))
    steps = length.steps or (None if length.seconds else length.epochs * count)
    history = distil(
        ours,
        theirs,
        lambda epoch: fitted.batches(np.random.default_rng([seed, epoch])),
        losses=losses or _losses_of(ours, theirs, labels, run.batches[0]),
        steps=steps,
        seconds=length.seconds,
        rate=rate,
        forward=_called,
        evaluate=judge.of_module,
        every=max(1, steps // LOOKS if steps else count),
        patience=patience,
        checkpoint=checkpoint,
        speed=speed,
        progress=progress,
    )
    model = ours.updated()
    after = judge.of_model(model)
    if not _first(after) >= _first(before):
        # a training may be too short to gain anything
        ours.load_state_dict(start)
        model, after, history = ours.updated(), before, replace(history, kept=0)
    weights = [one.weight for one in ours.layers.values()]
    report = DistilledReport(
        history,
        before,
        after,
        judge.of_teacher(),
        judged is not fitted,
        len(judged),
        sum(one.numel() for one in weights),
        sum(int((one != 0).sum()) for one in weights),
        speed,
        judge.interval(first, model),
        judge.difference(ours, model),
    )
    return Distilled(model, report)


def _first(numbers: Mapping[str, float]) -> float:
    return next(iter(numbers.values()))


def _samples(module: OnnxModule, data: Arrays, labels: str | None, batch: int) -> Samples:
    feeds = dict(data)
    if labels is not None and labels not in feeds:
        raise ValueError(f"the data has no array {labels!r} of labels, it holds {', '.join(feeds) or 'none'}")
    wanted = None if labels is None else feeds.pop(labels)
    return Samples.of(module.original, feeds, wanted, batch)


def _inputs(batch: Batch) -> dict[str, Tensor]:
    return {name: value for name, value in batch.items() if name != LABELS}


def _called(module: Module, batch: Batch) -> Output:
    return module(**_inputs(batch))


def _losses_of(ours: OnnxModule, theirs: OnnxModule | None, labels: str | None, batch: Batch) -> list[Weighed]:
    found = list[Weighed]()
    name = ours.outputs[0]
    if theirs is not None:
        is_text = any("mask" in one for one in ours.inputs)
        is_embedding = any(word in name for word in ("hidden_state", "embedding"))
        first = "logits" if "logits" in name else "embedding" if is_embedding and is_text else "outputs"
        found.append(first)
        if _alike(ours, theirs, batch):
            found.append("hidden")
    return [*found, "labels"] if labels is not None else found


def _alike(ours: OnnxModule, theirs: OnnxModule, batch: Batch) -> bool:
    """Return whether hidden states that would be compared have the same shapes: graphs may be written differently."""
    if not len(ours.states) or len(theirs.states) % len(ours.states):
        return False
    shapes: list[list[Sequence[int]]] = []
    for module, blocks in zip((ours, theirs), Hidden().blocks(ours, theirs), strict=True):
        seen = dict[nn.Module, Sequence[int]]()
        hooks = [one.register_forward_hook(partial(_see_shape, seen)) for one in blocks]
        with torch.no_grad():
            _called(module, moved(batch, device_of(module)))
        for hook in hooks:
            hook.remove()
        shapes.append([seen[one] for one in blocks])
    return shapes[0] == shapes[1]


def _see_shape(seen: dict[nn.Module, Sequence[int]], block: nn.Module, _: object, output: Tensor) -> None:
    seen[block] = output.shape


def _speed(module: OnnxModule, run: Run, rows: int | None) -> float | None:
    """Return the predicted times by which sparse layers are as fast as dense ones."""
    from .prices import Call
    from .speed import priced

    try:
        weights = [one for one in prunable_weights(module) if not hasattr(one.modules[0], "rounding")]
    except ValueError:
        return None
    if not any(one.zeros for one in weights):
        return None
    # outputs of as many zeros each have kernels of their own
    is_equal = all(len({int(one) for one in (w.matrix == 0).sum(1)}) == 1 for w in weights if w.zeros)
    from .report import PruneReport

    plan = priced(module, weights, run, "equal" if is_equal else "free", Call(rows, 1), 0.0)
    return plan.reported(PruneReport((), 0.0), weights).speedup


class _Judge:
    """Quality on samples: of modules in torch during the training, and of files in onnxruntime."""

    def __init__(self, samples: Samples, metric: Metric, teacher: OnnxModule) -> None:
        self._samples, self._metric = samples, metric
        self._orders = samples.orders(None)
        self._feeds = [samples.feeds(which) for which in self._orders]
        self._teacher = _outputs(teacher, self._feeds)

    def _answers(self, outputs: list[dict[str, NDArray[Any]]]) -> Answers:
        labels = self._samples.labels
        own = None if labels is None else labels[np.concatenate(self._orders)]
        return Answers(outputs, self._feeds, self._teacher, own)

    def interval(self, first: onnx_ir.Model, second: onnx_ir.Model) -> Interval | None:
        """Return 95 % of what the second model gains over the first, by onnxruntime."""
        answers = [self._answers(outputs_of(one, self._feeds)) for one in (first, second)]
        return difference_interval(self._metric, *answers)

    def _measured(self, outputs: list[dict[str, NDArray[Any]]]) -> dict[str, float]:
        answers = self._answers(outputs)
        return self._metric(answers) | (quality(answers) if self._metric is not quality else {})

    def of_module(self, module: nn.Module) -> dict[str, float]:
        return self._measured(_outputs(module, self._feeds))

    def of_teacher(self) -> dict[str, float]:
        return self._measured(self._teacher)

    def of_model(self, model: onnx_ir.Model) -> dict[str, float]:
        """Return the quality of a model by onnxruntime."""
        return self._measured(outputs_of(model, self._feeds))

    def difference(self, module: OnnxModule, model: onnx_ir.Model) -> float:
        """Return the largest difference of a module's outputs from onnxruntime's, over the largest output."""
        (ours,) = _outputs(module, self._feeds[:1])
        (theirs,) = outputs_of(model, self._feeds[:1])
        return max(
            (
                float(np.abs(ours[name] - value).max(initial=0) / max(1e-30, np.abs(value).max(initial=0)))
                for name, value in theirs.items()
            ),
            default=0.0,
        )


def _outputs(module: nn.Module, feeds: Sequence[Arrays]) -> list[dict[str, NDArray[Any]]]:
    device, found = device_of(module), list[dict[str, NDArray[Any]]]()
    with torch.no_grad():
        for one in feeds:
            batch = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in one.items()}
            outputs = module(**moved(batch, device))
            found.append(floating({name: value.cpu().numpy() for name, value in outputs.items()}))
    return found


def set_threads(count: int) -> None:
    """Let torch compute on so many threads."""
    torch.set_num_threads(count)
