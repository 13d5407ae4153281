"""The CPU that kernels are emitted for: LLVM's name and feature string for it, and what follows from them."""

import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class CpuTarget:
    """A CPU as LLVM's target machine takes it, and the floats in one of its vector registers.

    `features` is LLVM's list, "+avx2,+fma,-avx512f"; what it does not switch on is not used, whatever the CPU's name.
    """

    cpu: str
    features: str
    lanes: int

    @classmethod
    def from_features(cls, cpu: str, features: str) -> "CpuTarget":
        """Return the target with the widest vectors for which `features` has both arithmetic and fused multiply-add."""
        enabled = _switched_on(features)
        if "avx512f" in enabled:
            return cls(cpu, features, 16)
        if {"avx2", "fma"} <= enabled:
            return cls(cpu, features, 8)
        return cls(cpu, features, 4)

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
    def generic(cls) -> "CpuTarget":
        """Return the least of the host's architecture: SSE2 on x86-64, LLVM's default elsewhere."""
        return cls.from_features("x86-64" if platform.machine().lower() in {"x86_64", "amd64"} else "", "")

    @property
    def extensions(self) -> frozenset[str]:
        """The names of the instruction sets that are switched on."""
        return _switched_on(self.features)

    @property
    def has_fma(self) -> bool:
        """Whether there is an instruction for a * b + c; without one LLVM would call libm."""
        return self.lanes >= 8

    @property
    def has_bfloat(self) -> bool:
        """Whether there is an instruction for products of pairs of bfloat16."""
        return self.has_avx512 and "avx512bf16" in self.extensions

    @property
    def places_bytes(self) -> bool:
        """Whether there are instructions that place 64 bytes by a mask, and that add their products."""
        return self.has_avx512 and {"avx512bw", "avx512vbmi2", "avx512vnni"} <= self.extensions

    @property
    def has_avx512(self) -> bool:
        """Whether vectors of 16 floats and 32 registers may be used."""
        return self.lanes >= 16


def _switched_on(features: str) -> frozenset[str]:
    return frozenset(feature[1:] for feature in features.split(",") if feature.startswith("+"))
