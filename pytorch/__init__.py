"""`redpebble.torch`: sparse modules that are good, in plain torch; the page to read first here.

```python
import copy, redpebble

student = copy.deepcopy(teacher)
redpebble.torch.drop_layers(student, keep=[0, 3, 5])                   # depth is a structure like any other
report = redpebble.torch.prune(student, batches[:20], sparsity=0.7)    # zeros that stay zero under any optimizer
history = redpebble.torch.distil(student, teacher, batches, seconds=600, evaluate=quality, every=200)
```

`prune(module, data, ...)` sets weights of linear layers and convolutions to zero, in place, and masks them: parameters
keep their names and remain what optimizers, `state_dict` and exporters know. `method` is one of magnitude, wanda, obs,
sparsegpt, admm, movement; `structure` one of free, equal, n:32, 2:4, 64:2:8, blocks:4, blocks:4:4, ...; both are
solved on the module's device. `keep_zeros(module)` masks what a file has brought, `remove_masks(module)` lets
all be dense again.

`drop_heads(module, data, 4)` drops so many heads of each attention, those without which least is lost; with
`prune(..., speedup=2.0, heads=True)` prices say how many.

`distil(student, teacher, batches, ...)` trains what is left: losses embedding, similarity, hidden, logits, labels, or
any function of two answers. A batch is a mapping of keyword arguments, a tuple of arguments, or one tensor;
`forward(module, batch)` says how a module is called with anything else.

`compile(module, example)` returns a module that runs a session of onnxruntime with our code, and
`torch.compile(module, backend="redpebble")` lets sessions run the graphs of sparse layers.

`quantize(module, data)` lets layers compute as if with eight bits while they are trained, as their int8 form will;
`quantize(module, bits=4)` rounds weights in groups, as MatMulNBits has them. `low_rank(module, rank)` trains only a
difference of low rank from the weights, which is stored in a few bytes, and `round_weights(module)` rounds it as well.

`distil_model(sparse, dense, data)` does that to ONNX files; `OnnxModule(file)` is one as a module.

`register_sparsifier`, `register_structure`, `register_attention`, `register_loss`, `register_layout` and
`register_operator` each add one of your own.

```
layers          weights that can be pruned, as matrices                layers.py
masks           zeros that stay, and those that torch keeps             masks.py, torch_zeros.py
structures      masks from scores, sparsifiers: weights from masks     structures.py, sparsifiers.py
layer_inputs    what comes into layers, how weights move                layer_inputs.py, batches.py, movement.py
prune, distil   the two functions, with their reports                  prune.py, report.py, distil.py, history.py
quantize        rounding to eight or four bits, trained with           quantize.py, few_bits.py
low_rank        differences that are small to store, and rounded       low_rank.py, rounded_weights.py
speed, prices   densities and depth for a speed, rehearsed in sessions speed.py, prices.py, compiled/
losses          what a student is to learn                             losses.py
checkpoints     trainings that go on                                   checkpoints.py, progress.py
depth, heads    whole blocks, whole heads                              depth.py, attentions/
distil_model    ONNX models, as modules of torch and back              distil_models.py, imported/
compile         modules that run sessions, and dynamo's backend        compiled/, operators.py
```
"""

from typing import TYPE_CHECKING

from .attentions.heads import HeadNames, drop_heads, register_attention
from .depth import blocks_of, drop_layers
from .distil import distil
from .history import History
from .layers import prunable_weights
from .losses import Answer, Embedding, Hidden, Labels, Logits, Similarity, register_loss
from .low_rank import low_rank
from .masks import apply_masks, mask_of, remove_masks
from .operators import register_operator
from .prune import keep_zeros, prune
from .quantize import quantize
from .report import PruneReport
from .rounded_weights import round_weights
from .sparsifiers import register_sparsifier
from .structures import Sparsity, Structure, register_structure
from .torch_zeros import register_layout

if TYPE_CHECKING:
    from .compiled.compile import CompiledModule
    from .compiled.compile import compile as compile  # noqa: A004
    from .distil_models import distil_model
    from .imported.module import OnnxModule

__all__ = [
    "Answer",
    "CompiledModule",
    "Embedding",
    "HeadNames",
    "Hidden",
    "History",
    "Labels",
    "Logits",
    "OnnxModule",
    "PruneReport",
    "Similarity",
    "Sparsity",
    "Structure",
    "apply_masks",
    "blocks_of",
    "compile",
    "distil",
    "distil_model",
    "drop_heads",
    "drop_layers",
    "keep_zeros",
    "low_rank",
    "mask_of",
    "prunable_weights",
    "prune",
    "quantize",
    "register_attention",
    "register_layout",
    "register_loss",
    "register_operator",
    "register_sparsifier",
    "register_structure",
    "remove_masks",
    "round_weights",
]


def __getattr__(name: str) -> object:
    """Load what reads and runs ONNX where it is asked for: all else needs torch alone."""
    homes = {
        "CompiledModule": "compiled.compile",
        "OnnxModule": "imported.module",
        "compile": "compiled.compile",
        "distil_model": "distil_models",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{homes[name]}", __name__), name)
