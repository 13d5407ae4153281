import copy
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from redpebble import pytorch  # noqa: E402
from redpebble.pytorch.losses import LOSSES, Answer  # noqa: E402
from tests.pytorch.networks import Batch, Encoder, Module, Tensor, token_batches  # noqa: E402


def pruned(teacher: Module, sparsity: float = 0.7) -> Module:
    student = copy.deepcopy(teacher)
    pytorch.prune(student, sparsity=sparsity)
    return student


def cosine_to(teacher: Module) -> Callable[[Module], float]:
    (batch,) = token_batches(1)
    wanted = Answer(teacher(**batch), batch).pooled("mean").detach()

    def cosine(module: Module) -> float:
        ours = Answer(module(**batch), batch).pooled("mean").detach()
        return float(torch.cosine_similarity(ours, wanted).mean())

    return cosine


@pytest.mark.parametrize("losses", [["embedding"], ["hidden"], ["logits", ("similarity", 0.1)]])
def test_a_student_comes_closer_to_its_teacher_and_keeps_its_zeros(losses: list[Any]) -> None:
    teacher = Encoder()
    student = pruned(teacher)
    student.words.requires_grad_(False)
    words, zeros = student.words.weight.detach().clone(), student.layers[0].up.weight == 0
    quality = cosine_to(teacher)
    before = quality(student)
    history = pytorch.distil(
        student, teacher, token_batches(), losses=losses, steps=40, evaluate=quality, every=10, rate=3e-3
    )
    if losses != ["logits", ("similarity", 0.1)]:
        assert quality(student) > before
    assert history.quality["quality"] == pytest.approx(quality(student), abs=1e-6)
    assert history.points[-1].loss < history.points[0].loss
    assert (history.steps, history.samples) == (40, 640)
    assert torch.equal(student.words.weight, words)
    assert torch.equal(student.layers[0].up.weight == 0, zeros)


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.qkv = torch.nn.Linear(64, 192)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(-1, (2, 32)).transpose(1, 2) for one in self.qkv(x).chunk(3, dim=-1))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, (q @ k.mT).detach())


@pytest.mark.parametrize("is_rounded", [False, True])
def test_attention_is_trained_in_floats_where_products_are_not(is_rounded: bool) -> None:
    seen: dict[str, set[tuple[bool, Any]]] = {"addmm": set(), "attention": set()}

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
            for name, types in seen.items():
                if name in str(func):
                    types.add((torch.is_grad_enabled(), args[1].dtype))
            return func(*args, **(kwargs or {}))

    def forward(module: Module, batch: Batch) -> Tensor:
        with Watched():
            return module(batch["x"])

    teacher, batches = Attention(), [{"x": torch.randn(4, 7, 64)}]
    dtype = torch.bfloat16 if is_rounded else torch.float32
    autocast = dtype if is_rounded else None
    pytorch.distil(pruned(teacher), teacher, batches, losses=["outputs"], steps=2, autocast=autocast, forward=forward)
    assert seen == {"addmm": {(True, dtype), (False, dtype)}, "attention": {(True, torch.float32), (False, dtype)}}


def test_a_student_with_fewer_layers_learns_states_as_deep() -> None:
    teacher = Encoder(depth=6)
    student = pytorch.drop_layers(copy.deepcopy(teacher), [0, 2, 5])
    ours, theirs = pytorch.Hidden().blocks(student, teacher)
    assert ours == list(student.layers)
    assert theirs == [teacher.layers[index] for index in (1, 3, 5)]


def test_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    teacher, batches = Encoder(), token_batches()

    def train(student: Module, stop_at: int | None, checkpoint: Path | None) -> pytorch.History:
        seen = 0

        def forward(module: Module, batch: Batch) -> Batch:
            nonlocal seen
            seen += module is student
            if stop_at is not None and seen > stop_at:
                raise KeyboardInterrupt
            return module(**batch)

        return pytorch.distil(student, teacher, batches, steps=20, forward=forward, checkpoint=checkpoint)

    whole, parts, path = pruned(teacher), pruned(teacher), tmp_path / "run" / "checkpoint.pt"
    train(whole, None, None)
    with pytest.raises(KeyboardInterrupt):
        train(parts, 8, path)
    again = pruned(teacher, 0.5)
    history = train(again, None, path)
    assert history.steps == 20
    for ours, theirs in zip(again.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    # a complete one is not repeated
    fresh = pruned(teacher)
    assert train(fresh, 0, path).points == history.points
    assert torch.equal(fresh.layers[0].up.weight, again.layers[0].up.weight)
    with pytest.raises(ValueError, match="is no checkpoint of this student"):
        train(Encoder(width=24), None, path)


def test_training_stops_early_and_keeps_the_best() -> None:
    teacher = Encoder()
    qualities = iter([0.5, 0.9, 0.8, 0.7, 0.6])
    weights = list[Any]()

    def evaluate(module: Module) -> dict[str, float]:
        weights.append(module.layers[0].up.weight.detach().clone())
        return {"quality": next(qualities)}

    student = pruned(teacher)
    history = pytorch.distil(student, teacher, token_batches(), steps=50, every=2, evaluate=evaluate, patience=2)
    assert history.stopped_early
    assert (history.kept, history.steps, dict(history.quality)) == (4, 8, {"quality": 0.9})
    assert torch.equal(student.layers[0].up.weight, weights[1])


def recall(module: Module) -> dict[str, float]:
    del module
    return {"recall": 0.625}


def test_a_terminal_shows_loss_quality_and_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")
    settings: dict[str, Any] = {"steps": 6, "every": 2, "evaluate": recall, "speed": 2.5}
    teacher = Encoder()
    for is_terminal, progress in ((True, True), (True, False), (False, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        pytorch.distil(pruned(teacher), teacher, token_batches(), progress=progress, **settings)
        shown = capsys.readouterr().err
        if not is_terminal or not progress:
            assert shown == ""
            continue
        assert re.search(r"loss \d", shown)
        assert "recall 0.625" in shown
        assert "2.50x as fast (predicted)" in shown


def test_labels_need_no_teacher_and_losses_of_ones_own_have_names() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(80, 80), torch.nn.Dropout(0.5), torch.nn.Linear(80, 3))
    x = torch.randn(64, 80)
    batches = [(x, x[:, :3].argmax(1))]
    pytorch.register_loss("small", lambda: lambda student, _: student.tensor.square().mean())
    try:
        history = pytorch.distil(
            module,
            None,
            lambda epoch: batches,
            losses=[pytorch.Labels(1), ("small", 1e-3)],
            forward=lambda one, batch: one(batch[0]),
            steps=60,
        )
    finally:
        del LOSSES["small"]
    assert history.samples == 60 * 64
    assert (module(x).argmax(1) == batches[0][1]).float().mean() > 0.9
    assert module.training


def no_number(*_: object) -> Tensor:
    return torch.tensor(float("nan"), requires_grad=True)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "length: expected steps or seconds, got neither"),
    ({"steps": 0}, "steps: expected more than 0, got 0"),
    ({"steps": 5, "losses": []}, "losses: expected one or more, got none"),
    ({"steps": 5, "losses": ["odd"]}, "loss: expected one of embedding.*, got 'odd'"),
    ({"steps": 5, "losses": [no_number]}, "loss: expected a finite number, got nan at step"),
]


@pytest.mark.parametrize("options, message", REFUSED)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    teacher = Encoder()
    with pytest.raises(ValueError, match=message):
        pytorch.distil(pruned(teacher), teacher, token_batches(), **options)


def test_batches_that_are_gone_are_refused() -> None:
    teacher = Encoder()
    with pytest.raises(ValueError, match="expected batches that can be gone through again"):
        pytorch.distil(pruned(teacher), teacher, iter(token_batches()), steps=10)
    frozen = pruned(teacher).requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter of the student wants gradients"):
        pytorch.distil(frozen, teacher, token_batches(), steps=10)
