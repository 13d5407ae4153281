"""`redpebble.torch.prune`: a module's weights become sparse where they are, and stay so while they are trained."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from .batches import Batch, Forward, Run, call
from .layer_inputs import layer_inputs
from .layers import Choice, PrunableWeight, prunable_weights
from .movement import Movement
from .report import PrunedWeight, PruneReport
from .sparsifiers import Sparsifier, loss_of, solved, sparsifier_of
from .structures import Sparsity, Structure, structure_of
from .torch_zeros import adopt_zeros

Sparsities = float | Mapping[str, float]
"""The share of zeros of all layers, or of each by name; layers that are not named stay as they are."""

Between = Callable[[nn.Module, PruneReport], object]


def prune(
    module: nn.Module,
    data: Iterable[Batch] | None = None,
    *,
    sparsity: Sparsities | None = None,
    speedup: float | None = None,
    method: str | Sparsifier | None = None,
    structure: str | Structure = "equal",
    layers: Choice = None,
    schedule: int | Sequence[float] = 1,
    between: Between | None = None,
    forward: Forward = call,
    rows: int | None = None,
    threads: int = 1,
    rest_us: float | None = None,
    shallow: bool = False,
    heads: bool = False,
) -> PruneReport:
    """Make the weights of linear layers and convolutions sparse, in place, and mask them.

    `data` are batches, which `forward` calls the module with; the method is `admm` where there are any, or else
    `magnitude`. A layer that data does not reach stays dense. `layers` are names (with `*`), or a predicate of name
    and module.

    The goal is a `sparsity`, the share of zeros of each layer or of layers by name (a structure that has only one
    density needs none), or a `speedup`: densities of layers are those that lose least at so many times the speed on
    this machine's CPU. That is for calls of so many `rows` of linear layers, by default 128 (samples, or all tokens),
    or images where there are convolutions, by default one, and on so many `threads`. Sessions of onnxruntime rehearse
    the speed, with samples of the first batch; prices alone tell it where torch cannot export the module, where a
    sample has more rows, and where all that is no layer to prune is said to take `rest_us` microseconds. A `shallow`
    module may lose blocks of a transformer, where others would have to be sparser than 70 %. With `heads` attentions
    may lose heads, as many as lose less than zeros do at that speed; `drop_heads` drops them before. Where `rows` are
    given the report predicts times of any goal.

    With a `schedule`, a number of steps or sparsities that rise to the last one, `between(module, report)` is called
    between two steps: it may train the module. Densities of a number of steps fall evenly by their logarithms.

    Raises:
        ValueError: an option is none or does not fit, a layer is none, or the method needs data.
    """
    adopt_zeros(module)
    chosen = prunable_weights(module, layers)
    solver, form = sparsifier_of(method or ("magnitude" if data is None else "admm")), structure_of(structure)
    needs_data = solver.reads not in ("nothing", "movement") or speedup is not None or rows is not None
    if needs_data and data is None:
        raise ValueError(
            f"expected data for method {method!r}, speedup or rows, which look at inputs of layers, got none"
        )
    run, plan, start = Run(list(data or ()) if needs_data else [], forward), None, time.perf_counter()
    if speedup is not None:
        if sparsity is not None or form.density is not None:
            raise ValueError(
                f"speedup: expected no sparsity and a structure of any density, got {sparsity} and {structure}"
            )
        # the price model is loaded where somebody asks for it: all else needs torch alone
        from .prices import Call
        from .speed import SpeedGoal, planned

        goal = SpeedGoal(speedup, Call(rows, threads), rest_us, shallow, heads)
        plan = planned(module, layers, run, solver, structure, goal)
        chosen = prunable_weights(module, layers)
    goals = _goals(chosen, sparsity, form) if plan is None else plan.sparsities
    shares = _shares(schedule, max(goals.values(), default=0.5))
    weights, report = [one for one in chosen if one.name in goals], PruneReport((), 0.0)
    learns, moved = solver.reads == "movement", dict[str, Tensor]()
    if learns and (between is None or len(shares) < 2):
        raise ValueError("movement: expected a schedule of 2 steps or more, and between that trains, got no training")
    for step, share in enumerate(shares, 1):
        # densities of step 1 of 3 are cube roots
        now = {name: 1 - (1 - goal) ** share for name, goal in goals.items()}
        inputs: Mapping[str, Tensor] = {}
        if learns:
            inputs = moved or {one.name: torch.zeros_like(one.matrix) for one in weights}
        elif solver.reads != "nothing":
            inputs = layer_inputs(module, weights, run, solver.reads)
        # a layer that no batch reaches may be one whose weight is read past its module: it stays dense
        reached = [one for one in weights if solver.reads == "nothing" or one.name in inputs]
        if weights and not reached:
            raise ValueError("expected data that the module is called with, got no batch that reaches a layer to prune")
        found = tuple(_pruned(one, inputs.get(one.name), Sparsity(form, 1 - now[one.name]), solver) for one in reached)
        report = PruneReport(found, report.seconds + time.perf_counter() - start)
        if between is not None and step < len(shares):
            with Movement(weights if learns else ()) as movement:
                between(module, report)
            moved = movement.moved
        start = time.perf_counter()
    if plan is None and rows is not None:
        from .prices import Call
        from .speed import priced

        plan = priced(module, chosen, run, structure, Call(rows, threads), rest_us or 0.0)
    return report if plan is None else plan.reported(report, chosen)


def keep_zeros(module: nn.Module) -> PruneReport:
    """Mask the weights that have zeros already: a pruned model that was loaded from a file is trained on in this way.

    Masks of `torch.nn.utils.prune` and sparse layouts become masks of ours, on plain parameters.

    Raises:
        ValueError: no weight has zeros.
    """
    adopt_zeros(module)
    found = [one for one in prunable_weights(module) if one.zeros]
    if not found:
        raise ValueError("expected a pruned module, got no linear layer or convolution whose weight has zeros")
    for one in found:
        one.set_mask(one.matrix != 0)
    return PruneReport(tuple(_reported(one, None) for one in found), 0.0)


def _goals(weights: Sequence[PrunableWeight], sparsity: Sparsities | None, structure: Structure) -> dict[str, float]:
    names = [one.name for one in weights]
    if structure.density is not None:
        only = 1 - structure.density
        if sparsity is not None and (isinstance(sparsity, Mapping) or abs(sparsity - only) > 1e-6):
            raise ValueError(f"sparsity: expected {only:g}, that of the structure, got {sparsity}")
        return dict.fromkeys(names, only)
    if sparsity is None:
        raise ValueError("goal: expected sparsity or speedup, got neither")
    goals = dict(sparsity) if isinstance(sparsity, Mapping) else {name: float(sparsity) for name in names}
    most = 0.99
    for name, value in goals.items():
        if name not in names:
            raise ValueError(f"layer to prune: expected one of {', '.join(names)}, got {name!r}")
        if not 0 < value <= most:
            raise ValueError(f"sparsity: expected more than 0 and up to {most:g}, got {value}")
    return goals


def _shares(schedule: int | Sequence[float], goal: float) -> list[float]:
    """Return the exponents of densities, step by step, that end with 1."""
    if isinstance(schedule, int):
        if schedule < 1:
            raise ValueError(f"schedule: expected 1 step or more, got {schedule}")
        return [step / schedule for step in range(1, schedule + 1)]
    steps = torch.tensor([*schedule, goal] if not schedule or schedule[-1] < goal else schedule, dtype=torch.float64)
    if not bool((steps.diff() > 0).all()) or not steps[0] > 0 or abs(float(steps[-1]) - goal) > 1e-6:
        raise ValueError(f"schedule: expected sparsities that rise to {goal:g}, got {list(schedule)}")
    return [float(one) for one in torch.log1p(-steps) / torch.log1p(-steps[-1])]


def _pruned(weight: PrunableWeight, inputs: Tensor | None, sparsity: Sparsity, solver: Sparsifier) -> PrunedWeight:
    """Prune a weight in place."""
    dense = weight.matrix
    sparse = solved(solver, dense, dense.new_zeros(0) if inputs is None else inputs, sparsity, weight.live)
    # the dense matrix is the parameter itself: the loss is taken before that changes
    is_product = solver.reads == "products"
    loss = loss_of(dense, sparse, inputs) if inputs is not None and is_product else None
    with torch.no_grad():
        weight.values.copy_(weight.as_stored(sparse))
    weight.set_mask(sparse != 0)
    return _reported(weight, loss)


def _reported(weight: PrunableWeight, loss: float | None) -> PrunedWeight:
    outputs, inputs = weight.matrix.shape
    return PrunedWeight(weight.name, outputs, inputs, weight.zeros, loss)
