"""Slots that files hold in fewer bytes are unpacked to what they were."""

import numpy as np
import pytest

from redpebble.kernels.formats.code_slots import LINE, PackedSlots
from redpebble.kernels.formats.stored_slots import STORED, as_stored, stored, unpacked_bytes
from redpebble.runtime.call_code import call_code
from redpebble.runtime.memory import address_of, aligned_bytes, aligned_copy
from tests.support.few_bits import FewBits
from tests.support.few_bits_layers import packed_slots

CASES = {
    "symmetric, half of it zeros": FewBits(96, 40, zeros=0.5, has_bias=True, accuracy=4),
    "symmetric, few left": FewBits(256, 48, zeros=0.95, accuracy=4),
    "one left": FewBits(256, 48, zeros=0.9999, accuracy=4),
    "zeros alone": FewBits(64, 20, zeros=1.0, accuracy=4),
    "zeros of its own, dense": FewBits(100, 16, has_zeros=True, zeros=0.0, accuracy=4),
    "zeros of its own, sparse": FewBits(260, 35, has_zeros=True, zeros=0.9, accuracy=4),
    "two of four": FewBits(300, 40, of_four=2, accuracy=4),
    "one of four, in groups of 16": FewBits(100, 17, of_four=1, size=16, accuracy=4),
    "groups of 16": FewBits(100, 37, size=16, zeros=0.6, accuracy=4),
    "groups of 128": FewBits(300, 33, size=128, zeros=0.8, accuracy=4),
    "many panels": FewBits(64, 16 * 66 + 3, zeros=0.7, accuracy=4),
    "one of each": FewBits(1, 1, zeros=0.0, accuracy=4),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_stored_is_unpacked_to_the_same_bytes(name: str) -> None:
    packed = packed_slots(CASES[name])
    kept = stored(packed)
    if kept.dtype == LINE:
        # too many steps for a key, or too small for the header to pay
        assert CASES[name].has_zeros or packed.nbytes < 3000
        return
    assert kept.nbytes < packed.nbytes
    kept, result = aligned_copy(kept), aligned_bytes(unpacked_bytes(kept))
    call_code().functions["unpack_slots"](address_of(kept), address_of(result))
    assert result.tobytes() == packed.tobytes()


def test_parts_of_an_array_are_found_again() -> None:
    packed = packed_slots(CASES["symmetric, half of it zeros"])
    parts = PackedSlots.of(packed)
    assert parts.units.shape == (3, 3)
    assert parts.array.tobytes() == packed.tobytes()


@pytest.mark.parametrize(("zeros", "most"), [(0.5, 0.452), (0.8, 0.29), (0.9, 0.21)])
def test_a_weight_takes_as_few_bytes_as_its_form_needs(zeros: float, most: float) -> None:
    case = FewBits(2048, 256, zeros=zeros, accuracy=4)
    assert as_stored(packed_slots(case)).nbytes < most * case.inputs * case.outputs


def test_other_arrays_are_stored_as_they_are() -> None:
    array = np.arange(5.0)
    assert as_stored(array) is array
    kept = stored(packed_slots(CASES["many panels"]))
    assert kept.dtype == STORED
    assert as_stored(kept) is kept
