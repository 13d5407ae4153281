"""Masks of parameters: zeros stay zero under any optimizer of torch, and nothing else of the module changes.

A masked parameter remains the parameter it was, so names in `state_dict`, tied weights, `.to(device)`, exporters and
optimizers made before work as ever. Gradients of masked weights are zero (norms for clipping count what is trained),
and after the step of an optimizer, momentum from before the mask included, zeros are written once more.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

HOLDERS: Final = "_redpebble_masks"
"""Attribute of a module with the masks of its parameters, by their names."""


class WeightMask:
    """The mask of a parameter, of the same shape and type; it is copied and pickled together with the module."""

    def __init__(self, parameter: nn.Parameter, mask: Tensor) -> None:
        self._parameter = ref(parameter)
        self._mask = mask.to(parameter)
        self._hook: Any = None
        self._attach()

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter, which the mask does not keep alive."""
        found = self._parameter()
        assert found is not None
        return found

    @property
    def mask(self) -> Tensor:
        """Ones and zeros, where the parameter is."""
        if self._mask.device != self.parameter.device or self._mask.dtype != self.parameter.dtype:
            self._mask = self._mask.to(self.parameter)
        return self._mask

    def detach(self) -> None:
        """Let the parameter be dense again."""
        if self._hook is not None:
            self._hook.remove()
        del _MASKS[self.parameter]

    def _attach(self) -> None:
        if not _HOOKS:
            _HOOKS.append(register_optimizer_step_post_hook(_after_step))
        _MASKS[self.parameter] = self
        if self.parameter.requires_grad:
            self._hook = self.parameter.register_hook(self._masked)
        with torch.no_grad():
            self.parameter.mul_(self.mask)

    def _masked(self, gradient: Tensor) -> Tensor:
        return gradient * self.mask.to(gradient.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> "WeightMask":
        parameter = deepcopy(self.parameter, memo)
        copied = WeightMask(parameter, self._mask.clone())
        memo[id(self)] = copied
        return copied

    def __getstate__(self) -> tuple[nn.Parameter, Tensor]:
        return self.parameter, self._mask

    def __setstate__(self, state: tuple[nn.Parameter, Tensor]) -> None:
        parameter, self._mask = state
        self._parameter = ref(parameter)
        self._hook = None
        self._attach()


_MASKS: Final[Any] = WeakIdKeyDictionary()
"""Parameter -> its mask, for as long as the parameter lives."""

_HOOKS: Final[list[Any]] = []


def mask_of(parameter: Tensor) -> Tensor | None:
    """Return the mask of a parameter, None where it has none."""
    found = _MASKS.get(parameter)
    return None if found is None else found.mask


def set_mask(modules: Iterable[nn.Module], mask: Tensor | None, name: str = "weight") -> None:
    """Give the parameter that modules share a mask of its shape in place of the one it has, or none."""
    modules = list(modules)
    parameter = getattr(modules[0], name)
    if (before := _MASKS.get(parameter)) is not None:
        before.detach()
    holder = None if mask is None else WeightMask(parameter, mask)
    for module in modules:
        # a mapping that is never changed: a shallow copy of the module has it as well
        others = {key: one for key, one in module.__dict__.get(HOLDERS, {}).items() if key != name}
        module.__dict__[HOLDERS] = others if holder is None else others | {name: holder}


class Stored(NamedTuple):
    """Parameters of modules as they were, with their masks."""

    parameters: tuple[tuple[tuple[nn.Module, ...], str, Tensor, Tensor | None], ...]

    @staticmethod
    def of(weights: Iterable[tuple[Sequence[nn.Module], str]]) -> "Stored":
        """Return those of the parameters that modules share, by their names."""
        found = [(tuple(modules), name, getattr(modules[0], name)) for modules, name in dict.fromkeys(weights)]
        return Stored(tuple((modules, name, one.detach().clone(), mask_of(one)) for modules, name, one in found))

    def restore(self) -> None:
        """Let them be so again."""
        for modules, name, before, mask in self.parameters:
            set_mask(modules, mask, name)
            with torch.no_grad():
                getattr(modules[0], name).copy_(before)


def remove_masks(module: nn.Module) -> None:
    """Let all weights be trained again; zeros stay where they are until then."""
    for one in module.modules():
        for key in one.__dict__.pop(HOLDERS, ()):
            set_mask([one], None, key)


def masks_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the names of parameters that have masks, and those."""
    for name, one in module.named_modules():
        for key in one.__dict__.get(HOLDERS, ()):
            if (mask := mask_of(getattr(one, key))) is not None:
                yield f"{name}.{key}".lstrip("."), mask


def apply_masks(parameters: Iterable[Tensor]) -> None:
    """Write zeros where masks have them: for optimizers that are none of torch's."""
    found = [mask for parameter in parameters if (mask := _MASKS.get(parameter)) is not None]
    if found:
        with torch.no_grad():
            torch._foreach_mul_([one.parameter for one in found], [one.mask for one in found])


def _after_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    apply_masks(parameter for group in optimizer.param_groups for parameter in group["params"])
