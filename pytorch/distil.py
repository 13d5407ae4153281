"""`redpebble.torch.distil`: a student learns what its teacher answers, under the masks that it has.

The defaults are a recipe that was tried on sentence encoders: Adam with betas .9 and .98, a warm-up over 4 % of the
time and half a cosine down to zero, gradients clipped to a norm of 1, bfloat16 products, no dropout.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from math import cos, isfinite, pi
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .batches import Batch, Forward, Module, Output, call, device_of, moved
from .checkpoints import Checkpoint
from .history import History, Point
from .losses import Answer, Loss, Weighed, first_tensor, losses_of
from .progress import ProgressBar
from .torch_zeros import adopt_zeros

LOOK_SHARE: Final = 0.01
"""Part of the training between two losses of the history, where nothing else asks for one."""

LOOK_SECONDS: Final = 0.5
"""Time between two looks at the loss: each waits for the device."""

CHECKPOINT_SECONDS: Final = 60.0

Batches = Iterable[Batch] | Callable[[int], Iterable[Batch]]
"""Batches of an epoch, gone through again and again, or a function of the number of the epoch that returns them."""

Evaluate = Callable[[Any], float | Mapping[str, float]]
"""(module) -> its quality, more is better; of several numbers the first one decides."""


@dataclass(frozen=True)
class Training:
    """The length of a training, and its steps.

    Raises:
        ValueError: a number is out of range.
    """

    steps: int | None
    seconds: float | None
    rate: float
    warmup: float
    clip: float | None
    autocast: torch.dtype | None
    dropout: bool
    every: int | None
    patience: int | None

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise ValueError("length: expected steps or seconds, got neither")
        numbers = {"steps": self.steps, "seconds": self.seconds, "every": self.every, "rate": self.rate}
        for name, value in numbers.items():
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}: expected more than 0, got {value}")

    def share(self, step: int, seconds: float) -> float:
        """Return the part that is done, 1 or more at the end."""
        parts = [step / self.steps if self.steps else 0.0, seconds / self.seconds if self.seconds else 0.0]
        return max(parts)

    def rate_at(self, share: float) -> float:
        if share < self.warmup:
            return self.rate * (share + 1e-3) / (self.warmup + 1e-3)
        left = (share - self.warmup) / (1 - self.warmup)
        return self.rate * cos(min(left, 1.0) * pi / 2) ** 2


def distil(
    student: nn.Module,
    teacher: nn.Module | Callable[..., Any] | None,
    batches: Batches,
    *,
    losses: Sequence[Weighed] = ("embedding", "hidden"),
    steps: int | None = None,
    seconds: float | None = None,
    rate: float = 1e-3,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    warmup: float = 0.04,
    clip: float | None = 1.0,
    autocast: torch.dtype | Literal["auto"] | None = "auto",
    dropout: bool = False,
    forward: Forward = call,
    evaluate: Evaluate | None = None,
    every: int | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    speed: float | None = None,
    progress: bool = True,
) -> History:
    """Train a student in place, until so many `steps` or `seconds`, whichever comes first.

    `batches` is gone through as often as needed; `batches(epoch)` may return others each time. `forward(module, batch)`
    calls both modules. All parameters that want gradients are trained, on the device where they are. `losses` are
    names, functions of two answers, or pairs of such a one and its weight; without a teacher they read labels.
    `autocast` is the type of products, by default bfloat16 where the device is fast at it, or None for that of weights.

    `evaluate(student)` measures quality at the end and before, every so many steps if `every` is given; then the
    weights of the best one are kept, and training ends when `patience` measurements in a row were no better. With a
    `checkpoint` the training goes on where it stopped; one that is complete is not repeated. `speed`, as predicted,
    stands beside loss and quality in the progress bar.

    Raises:
        ValueError: an option does not fit, there are no batches, or the loss is no number any more.
    """
    adopt_zeros(student)
    dtype = _product_type(device_of(student)) if autocast == "auto" else autocast
    training = Training(steps, seconds, rate, warmup, clip, dtype, dropout, every, patience)
    parameters = [one for one in student.parameters() if one.requires_grad]
    if not parameters:
        raise ValueError("no parameter of the student wants gradients")
    made = _adam(parameters, rate) if optimizer is None else optimizer(parameters)
    trainer = _Trainer(student, training, made, _Objective(student, teacher, losses_of(losses), forward))
    trainer.evaluate, trainer.bar = evaluate, ProgressBar(speed, progress)
    return trainer.run(batches, None if checkpoint is None else Path(checkpoint))


def _product_type(device: torch.device) -> torch.dtype | None:
    """Return bfloat16 where the device multiplies it faster than float32."""
    is_fast = torch.cpu._is_avx512_bf16_supported() if device.type == "cpu" else device.type == "cuda"
    return torch.bfloat16 if is_fast else None


def _adam(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    is_fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.Adam(parameters, lr=rate, betas=(0.9, 0.98), fused=is_fused)


class _FloatAttention(TorchFunctionMode):
    """Attention that is trained in float32 under autocast.

    On CPUs torch's gradient of it takes 2 to 4 times as long in bfloat16 as in float32, at 32 and at 128 tokens.
    `nn.MultiheadAttention` hides its own from modes of torch.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if func is not functional.scaled_dot_product_attention or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            floats = {name: _as_float(one) for name, one in kwargs.items()}
            found = func(*map(_as_float, args), **floats)
        return found.to(self._dtype) if found.dtype == torch.float32 else found


def _as_float(value: Any) -> Any:  # noqa: ANN401
    is_half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if is_half else value


class _Objective:
    """The weighed sum of losses of a batch."""

    def __init__(
        self, student: nn.Module, teacher: Module, losses: Sequence[tuple[Loss, float]], forward: Forward
    ) -> None:
        self.student, self.teacher, self.losses, self.forward = student, teacher, losses, forward
        self._states: dict[nn.Module, Tensor] = {}
        self._wanted = dict[int, tuple[list[nn.Module], list[nn.Module]]]()
        for index, (loss, _) in enumerate(losses):
            if (blocks := getattr(loss, "blocks", None)) is not None:
                self._wanted[index] = blocks(student, teacher)

    def hooks(self) -> Iterator[Any]:
        """Yield hooks that keep the outputs of blocks; to be removed."""
        blocks = {block for pair in self._wanted.values() for side in pair for block in side}
        for block in blocks:
            yield block.register_forward_hook(self._keep)

    def _keep(self, block: nn.Module, _: object, output: Output) -> None:
        self._states[block] = first_tensor(output)

    def __call__(self, batch: Batch, share: float) -> Tensor:
        wanted = None
        if self.teacher is not None:
            with torch.no_grad():
                wanted = self.forward(self.teacher, batch)
        output = self.forward(self.student, batch)
        total: Any = 0.0
        for index, (loss, weight) in enumerate(self.losses):
            ours, theirs = (
                Answer(answer, batch, [self._states[block] for block in side], share)
                for answer, side in zip((output, wanted), self._wanted.get(index, ([], [])), strict=True)
            )
            total = total + weight * loss(ours, theirs)
        self._states.clear()
        return total


class _Trainer:
    """A training on its way."""

    evaluate: Evaluate | None = None
    bar: ProgressBar

    def __init__(
        self, student: nn.Module, training: Training, optimizer: torch.optim.Optimizer, objective: _Objective
    ) -> None:
        self.student, self.training, self.optimizer, self.objective = student, training, optimizer, objective
        self.device = device_of(student)
        self.parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self.state = Checkpoint()
        self.lost = torch.zeros((), device=self.device)
        self.looked, self.noted = 0, 0.0

    def run(self, batches: Batches, path: Path | None) -> History:
        if path is not None and path.exists():
            self.state = Checkpoint.load(path, self.student, self.optimizer)
        self.start = time.perf_counter() - self.state.seconds
        self.looked = self.state.step
        with ExitStack() as stack:
            stack.callback(self.bar.close)
            stack.callback(self.student.train, self.student.training)
            for hook in self.objective.hooks():
                stack.callback(hook.remove)
            if isinstance(self.objective.teacher, nn.Module):
                self.objective.teacher.eval()
            self._set_modes()
            try:
                self._train(batches, path)
            except KeyboardInterrupt:
                self._save(path)
                raise
        return self._finish(path)

    def _set_modes(self) -> None:
        """Let batch norms be trained, and dropout only where it is asked for."""
        self.student.train(self.training.dropout)
        for one in self.student.modules():
            if isinstance(one, nn.modules.batchnorm._BatchNorm):
                one.train()

    def _train(self, batches: Batches, path: Path | None) -> None:
        training, saved, looked = self.training, time.perf_counter(), 0.0
        stream = self._stream(batches)
        while not self.state.is_complete:
            if (share := training.share(self.state.step, self._elapsed())) >= 1:
                break
            self._step(next(stream), share)
            now = time.perf_counter()
            is_due = training.every is not None and self.state.step % training.every == 0
            if now - looked > LOOK_SECONDS or is_due:
                looked = now
                self._look(share, self.evaluate if is_due else None)
                if self._is_stuck():
                    self.state = replace(self.state, stopped_early=True)
                    break
            if now - saved > CHECKPOINT_SECONDS:
                saved = now
                self._save(path)

    def _step(self, batch: Batch, share: float) -> None:
        training = self.training
        for group in self.optimizer.param_groups:
            group["lr"] = training.rate_at(share)
        dtype = training.autocast
        attention = _FloatAttention(dtype) if dtype is not None and self.device.type == "cpu" else nullcontext()
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None), attention:
            loss = self.objective(moved(batch, self.device), share)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if training.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, training.clip)
        self.optimizer.step()
        self.lost += loss.detach()
        self.state = replace(
            self.state,
            step=self.state.step + 1,
            position=self.state.position + 1,
            samples=self.state.samples + _samples_of(batch),
        )

    def _stream(self, batches: Batches) -> Iterator[Batch]:
        """Yield batches from where the state is, epoch after epoch."""
        while True:
            epoch = batches(self.state.epoch) if callable(batches) else batches
            count = 0
            for batch in epoch:
                count += 1
                if count > self.state.position:
                    yield batch
            if not count:
                raise ValueError("expected batches that can be gone through again, as a list, got none or an iterator")
            self.state = replace(self.state, epoch=self.state.epoch + 1, position=0)

    def _elapsed(self) -> float:
        return time.perf_counter() - self.start

    def _look(self, share: float, evaluate: Evaluate | None) -> None:
        steps = self.state.step - self.looked
        if steps and (evaluate is not None or share >= min(1.0, self.noted + LOOK_SHARE)):
            loss = float(self.lost) / steps
            self.noted = share
            if not isfinite(loss):
                raise ValueError(
                    f"loss: expected a finite number, got {loss} at step {self.state.step}: try a lower rate"
                )
            quality = dict[str, float]() if evaluate is None else self._quality(evaluate)
            point = Point(self.state.step, self._elapsed(), loss, quality)
            self.state = self.state.with_point(point, self.student)
            self.looked, self.lost = self.state.step, torch.zeros_like(self.lost)
        last = next((one for one in reversed(self.state.points) if one.quality), None)
        words = "" if last is None else ", ".join(f"{name} {value:.4g}" for name, value in last.quality.items())
        self.bar.show(share, self.state.points[-1] if self.state.points else None, words)

    def _quality(self, evaluate: Evaluate) -> Mapping[str, float]:
        was_training = [(one, one.training) for one in self.student.modules()]
        self.student.eval()
        with torch.no_grad():
            found = evaluate(self.student)
        for one, training in was_training:
            one.training = training
        return dict(found) if isinstance(found, Mapping) else {"quality": float(found)}

    def _is_stuck(self) -> bool:
        measured = [one for one in self.state.points if one.quality]
        patience = self.training.patience
        if patience is None or not measured or not self.state.points[-1].quality:
            return False
        return sum(one.step > self.state.best_step for one in measured) >= patience

    def _save(self, path: Path | None) -> None:
        if path is not None:
            replace(self.state, seconds=self._elapsed()).save(path, self.student, self.optimizer)

    def _finish(self, path: Path | None) -> History:
        if not self.state.is_complete:
            points = self.state.points
            if self.evaluate is not None and not (points and points[-1].step == self.state.step and points[-1].quality):
                # a look at the same step again has no new loss
                loss = float(self.lost) / (self.state.step - self.looked) if self.state.step > self.looked else None
                known = points[-1].loss if points else float("nan")
                point = Point(
                    self.state.step, self._elapsed(), known if loss is None else loss, self._quality(self.evaluate)
                )
                self.state = self.state.with_point(point, self.student)
            else:
                self._look(1.0, None)
            self.state.restore_best(self.student)
            self.state = replace(self.state, is_complete=True)
            self._save(path)
        state = self.state
        kept = state.step if state.best is None else state.best_step
        return History(state.points, kept, state.samples, state.stopped_early)


def _samples_of(batch: Batch) -> int:
    try:
        return len(first_tensor(batch))
    except (ValueError, IndexError, StopIteration, TypeError):
        return 0
