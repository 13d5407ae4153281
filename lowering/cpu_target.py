"""The CPU that kernels are emitted for: LLVM's name and feature string for it, and what follows from them."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from .architectures import LINUX, Architecture, architecture_of, host_name


def _switched_on(features: str) -> frozenset[str]:
    return frozenset(feature[1:] for feature in features.split(",") if feature.startswith("+"))


class ByteProducts(NamedTuple):
    """The instruction that adds the products of four bytes of inputs and four signed ones of weights to each lane."""

    lanes: int
    name: str = ""
    """LLVM's intrinsic, (sums, inputs, weights) -> sums; without one products are widened and added in pairs."""
    takes_bytes: bool = False
    """Whether LLVM has its operands as vectors of bytes, not as lanes."""
    center: int = 0
    """The number that is subtracted from inputs: 128 where the instruction takes signed ones."""
    add_pairs: tuple[str, str] = ("", "")
    """Without `name`: the sums of neighbouring words in one vector, and of neighbouring lanes of two vectors."""


class BfloatProducts(NamedTuple):
    """The instruction that adds the products of two bfloat16 and two others to each lane."""

    lanes: int
    name: str
    """LLVM's intrinsic, (sums, pairs, pairs) -> sums."""
    takes_bytes: bool = False
    """Whether LLVM has its operands as vectors of bytes, not as lanes."""
    round_two: str = ""
    """LLVM's intrinsic that rounds two vectors of floats into one, (high, low) -> bfloat16; empty where the plain
    conversion is such an instruction."""


class ByteLookUp(NamedTuple):
    """The instruction that looks up each byte of a register among some."""

    lanes: int
    """Lanes of four bytes in the register."""
    name: str
    """LLVM's intrinsic, (tables..., indices) -> bytes."""
    reach: int = 16
    """Bytes among which it chooses: tables of 16, which stand in each quarter of a register."""
    panel: int = 0
    """Outputs of a panel of look-ups, `lanes` by default: of more than a register, to share what is read."""


class StatedCpu(NamedTuple):
    """Facts that vendors state of a CPU which is not at hand: its caches, and the prices that count for it."""

    prices: str
    """The machine in `kernels/prices.py`."""
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    """The share of the last level that one core gets to itself."""
    shared_bytes: int


@dataclass(frozen=True)
class CpuTarget:
    """A CPU as LLVM's target machine takes it, and the floats in one of its vector registers.

    `features` is LLVM's list, "+avx2,+fma,-avx512f"; what it does not switch on is not used, whatever the CPU's name.
    """

    cpu: str
    features: str
    lanes: int
    architecture_name: str = "x86_64"
    stated: StatedCpu | None = field(default=None, compare=False)
    """Facts of a named CPU, which the choice of kernels reads and code does not."""
    triple: str = ""
    """LLVM's name for the system that code is for, as it differs from that of this machine; else empty."""

    @classmethod
    def from_features(cls, cpu: str, features: str, architecture_name: str = "x86_64") -> "CpuTarget":
        """Return the target with the widest vectors for which `features` has both arithmetic and fused multiply-add."""
        enabled = _switched_on(features)
        if "avx512f" in enabled:
            return cls(cpu, features, 16, architecture_name)
        if {"avx2", "fma"} <= enabled:
            return cls(cpu, features, 8, architecture_name)
        return cls(cpu, features, 4, architecture_name)

    @classmethod
    def avx512(cls) -> "CpuTarget":
        """Return x86-64 with AVX-512 as all server CPUs since 2017 have it."""
        extensions = "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
        return cls.from_features("x86-64", f"+avx,+avx2,+fma,{extensions}")

    @classmethod
    def avx2(cls) -> "CpuTarget":
        """Return x86-64 with AVX2 and FMA."""
        return cls.from_features("x86-64", "+avx,+avx2,+fma")

    @classmethod
    def avx512vnni(cls) -> "CpuTarget":
        """Return x86-64 with AVX-512 that multiplies bytes, as servers of Intel since 2019 have it."""
        return cls.from_features("x86-64", f"{cls.avx512().features},+avx512vnni")

    @classmethod
    def zen4(cls) -> "CpuTarget":
        """Return x86-64 that also looks up among 128 bytes and multiplies bfloat16, as servers of AMD since 2022 do."""
        return cls.from_features("x86-64", f"{cls.avx512vnni().features},+avx512vbmi,+avx512bf16")

    @classmethod
    def avxvnni(cls) -> "CpuTarget":
        """Return x86-64 with AVX2 that multiplies bytes, as desktops of Intel since 2021 have it."""
        return cls.from_features("x86-64", f"{cls.avx2().features},+avxvnni")

    @classmethod
    def arm64(cls) -> "CpuTarget":
        """Return the least of 64-bit ARM: NEON, 32 registers of 4 floats."""
        return cls.generic("aarch64")

    @classmethod
    def arm64_dot(cls) -> "CpuTarget":
        """Return 64-bit ARM that multiplies bytes, as servers and phones since 2018 and all of Apple's M series do."""
        return cls.from_features("generic", "+dotprod", "aarch64")

    @classmethod
    def arm64_i8mm(cls) -> "CpuTarget":
        """Return 64-bit ARM that multiplies unsigned bytes by signed ones, and bfloat16, as servers since 2022 do."""
        return cls.from_features("generic", f"{cls.arm64_dot().features},+i8mm,+bf16", "aarch64")

    @classmethod
    def arm64_sve2(cls) -> "CpuTarget":
        """Return the same with SVE2: code of this process has it where a CPU does, libraries have no level of it."""
        return cls.from_features("generic", f"{cls.arm64_i8mm().features},+sve2", "aarch64")

    @classmethod
    def generic(cls, architecture_name: str = "") -> "CpuTarget":
        """Return the least CPU of an architecture, the host's by default: SSE2 on x86-64, NEON on ARM."""
        least = architecture_of(architecture_name or host_name())
        return cls.from_features(least.cpu, least.features, least.name)

    @property
    def on_linux(self) -> "CpuTarget":
        """The same CPU under Linux, where libraries run, whatever this machine's system is."""
        return self if platform.system() == LINUX else replace(self, triple=self.architecture.triple)

    @property
    def architecture(self) -> Architecture:
        """The kind of CPUs that it is one of."""
        return architecture_of(self.architecture_name)

    @property
    def extensions(self) -> frozenset[str]:
        """The names of the instruction sets that are switched on."""
        return _switched_on(self.features)

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 32 if self.has_avx512 else self.architecture.registers

    @property
    def has_fma(self) -> bool:
        """Whether there is an instruction for a * b + c; without one LLVM would call libm."""
        return self.lanes >= 8 or self.architecture.has_fma

    @property
    def has_bfloat(self) -> bool:
        """Whether there is an instruction for products of pairs of bfloat16."""
        return self.bfloat_products is not None

    @property
    def bfloat_products(self) -> BfloatProducts | None:
        """The instruction for products of pairs of bfloat16, or None."""
        return next((found for needed, found in _BFLOAT_PRODUCTS if needed <= self._names), None)

    @property
    def places_bytes(self) -> bool:
        """Whether there are instructions that place 64 bytes by a mask, and that add their products."""
        return self.has_avx512 and {"avx512bw", "avx512vbmi2", "avx512vnni"} <= self.extensions

    @property
    def has_avx512(self) -> bool:
        """Whether vectors of 16 floats and 32 registers may be used, and floats looked up among two of them."""
        return self.lanes >= 16

    @property
    def look_up(self) -> ByteLookUp | None:
        """The instruction that looks up bytes among a few, or None."""
        return next((found for needed, found in _LOOK_UPS if needed in self._names), None)

    @property
    def lookup_lanes(self) -> int:
        """Lanes of the vectors whose bytes are looked up among 16 in one instruction; 0 where none is."""
        return 0 if self.look_up is None else self.look_up.lanes

    @property
    def line_look_up(self) -> ByteLookUp | None:
        """The instruction that looks up bytes among 64, with 0 for those beyond, or None."""
        return next((found for needed, found in _LINE_LOOK_UPS if needed in self._names), None)

    @property
    def looks_up_lines(self) -> bool:
        """Whether there is an instruction that looks up 64 bytes among 128."""
        return "avx512vbmi" in self.extensions

    @property
    def packs_lines(self) -> bool:
        """Whether there are instructions that make 64 bytes of four vectors of integers."""
        return "avx512bw" in self.extensions

    @property
    def byte_products(self) -> ByteProducts | None:
        """The instruction for products of bytes on the widest registers that are used, or None."""
        return next(
            (found for needed, without, found in _PRODUCTS if needed <= self._names and without not in self._names),
            None,
        )

    @property
    def multiplies_bytes(self) -> bool:
        """Whether there is one."""
        return self.byte_products is not None

    @property
    def multiplies_tiles(self) -> bool:
        """Whether there are instructions that multiply tiles of bytes."""
        return self.has_avx512 and {"amx-tile", "amx-int8", "avx512bw", "avx512vnni"} <= self.extensions

    @property
    def multiplies_bfloat_tiles(self) -> bool:
        """Whether there are instructions that multiply tiles of bfloat16."""
        return self.has_avx512 and {"amx-tile", "amx-bf16"} <= self.extensions

    @property
    def code_center(self) -> int:
        """The number that is subtracted from codes where bytes are multiplied."""
        return 0 if self.byte_products is None else self.byte_products.center

    @property
    def _names(self) -> frozenset[str]:
        """The names of the instruction sets, and that of the architecture."""
        return self.extensions | {self.architecture_name}


_LOOK_UPS: Final = (
    ("avx512bw", ByteLookUp(16, "llvm.x86.avx512.pshuf.b.512")),
    ("avx2", ByteLookUp(8, "llvm.x86.avx2.pshuf.b")),
    ("aarch64", ByteLookUp(4, "llvm.aarch64.neon.tbl2.v16i8", reach=32, panel=16)),
)
"""Instruction sets and their instructions, the best first."""

_LINE_LOOK_UPS: Final = (("aarch64", ByteLookUp(4, "llvm.aarch64.neon.tbl4.v16i8", reach=64)),)

_VPDPBUSD: Final = ByteProducts(8, "llvm.x86.avx512.vpdpbusd.256")
_SADDLP_ADDP: Final = ("llvm.aarch64.neon.saddlp.v4i32.v8i16", "llvm.aarch64.neon.addp.v4i32")

_PRODUCTS: Final = (
    (frozenset({"avx512bw", "avx512vnni"}), "", ByteProducts(16, "llvm.x86.avx512.vpdpbusd.512")),
    (frozenset({"avx2", "avxvnni"}), "avx512bw", _VPDPBUSD),
    (frozenset({"avx2", "avx512vnni", "avx512vl"}), "avx512bw", _VPDPBUSD),
    (frozenset({"i8mm"}), "", ByteProducts(4, "llvm.aarch64.neon.usdot.v4i32.v16i8", takes_bytes=True)),
    (frozenset({"dotprod"}), "", ByteProducts(4, "llvm.aarch64.neon.sdot.v4i32.v16i8", takes_bytes=True, center=128)),
    (frozenset({"aarch64"}), "", ByteProducts(4, takes_bytes=True, center=128, add_pairs=_SADDLP_ADDP)),
)
"""Instruction sets that must be there, one that must not, and the instruction."""

_DPBF16PS: Final = BfloatProducts(
    16, "llvm.x86.avx512bf16.dpbf16ps.512", round_two="llvm.x86.avx512bf16.cvtne2ps2bf16.512"
)

_BFLOAT_PRODUCTS: Final = (
    (frozenset({"avx512f", "avx512bf16"}), _DPBF16PS),
    (frozenset({"aarch64", "bf16"}), BfloatProducts(4, "llvm.aarch64.neon.bfdot.v4f32.v16i8", takes_bytes=True)),
)

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20

_SMALL: Final = StatedCpu("cortex_a76", 64 * _KIB, 512 * _KIB, 2 * _MIB, 2 * _MIB)
_N_SERVER: Final = StatedCpu("neoverse_n1", 64 * _KIB, _MIB, 2 * _MIB, 32 * _MIB)
_N2_SERVER: Final = _N_SERVER._replace(prices="neoverse_n2")
_V_SERVER: Final = StatedCpu("neoverse_v2", 64 * _KIB, 2 * _MIB, 4 * _MIB, 36 * _MIB)
_APPLE: Final = StatedCpu("apple_m", 128 * _KIB, 12 * _MIB, 12 * _MIB, 16 * _MIB)

ARM_CPUS: Final[Mapping[str, CpuTarget]] = {
    name: replace(target, stated=stated)
    for name, target, stated in (
        ("generic-arm64", CpuTarget.arm64(), _SMALL),
        ("cortex-a72", CpuTarget.arm64(), _SMALL._replace(l1_bytes=32 * _KIB)),
        ("cortex-a76", CpuTarget.arm64_dot(), _SMALL),
        ("neoverse-n1", CpuTarget.arm64_dot(), _N_SERVER),
        ("neoverse-n2", CpuTarget.arm64_i8mm(), _N2_SERVER),
        ("neoverse-v1", CpuTarget.arm64_i8mm(), _V_SERVER._replace(l2_bytes=_MIB)),
        ("neoverse-v2", CpuTarget.arm64_i8mm(), _V_SERVER),
        ("apple-m1", CpuTarget.arm64_dot(), _APPLE),
        ("apple-m2", CpuTarget.arm64_i8mm(), _APPLE._replace(l2_bytes=16 * _MIB, l3_bytes=16 * _MIB)),
    )
}
"""CPUs of 64-bit ARM by LLVM's names: the instructions that our code uses of them, and their caches."""
