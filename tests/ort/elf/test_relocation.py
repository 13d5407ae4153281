"""Distances that a relocation of x86 can hold: 32 bits with a sign."""

import struct

import pytest

from redpebble.ort.elf.object_file import EM_X86_64, ElfError, machine_of

LEAST, MOST = -(1 << 31), (1 << 31) - 1


@pytest.mark.parametrize("distance", [LEAST, -1, 0, MOST])
def test_a_distance_of_32_bits_is_written_where_it_belongs(distance: int) -> None:
    data = bytearray(b"\xaa" * 12)
    machine_of(EM_X86_64).patch(data, 4, distance)
    assert struct.unpack("<4si4s", data) == (b"\xaa" * 4, distance, b"\xaa" * 4)


@pytest.mark.parametrize("distance", [LEAST - 1, MOST + 1, 4 << 30, -(8 << 30), 1 << 40])
def test_a_farther_distance_is_refused(distance: int) -> None:
    data = bytearray(8)
    expected = f"expected less than 2 GB of code and data, got a distance of {distance}, more than 32 bits"
    with pytest.raises(ElfError, match=f"^{expected}$"):
        machine_of(EM_X86_64).patch(data, 0, distance)
    assert data == bytes(8)
