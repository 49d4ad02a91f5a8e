"""Random problems for products with 4-bit weights on Hopper, every byte of what is written and of what lies around it compared.

    python tools/soak_four_bit.py [--cubins DIR] [--count 10000] [--seed 0] [--only 'gemm.fp8_nvfp4.*'] [--small]

As tools/soak_gemm.py, from which rows, groups and outputs come. The answers are of a scalar CUDA kernel, one thread a sum, integers for the
tensor core's additions; weights are decoded by torch and packed by pack.<format>.fragments. They share no code with the GEMMs. In the
first problems they are held to zoo.reference.
Ends with 1 where anything differs; every difference is printed with the seed of its problem.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cupy
import ml_dtypes
import numpy
import torch

import zoo
from zoo.reference.four_bit_gemm import gemm_bf16_by_four_bit, gemm_fp8_by_four_bit
from zoo.reference.fragments import chunk_shape

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.lab.viewed import of_matrices
from tools.soak_gemm import Output, Problem, soak_from_the_command_line

SOURCE = r"""
// A code is a sign, an exponent and `bits` of significand: 3 of e4m3, 7 of bf16. An instruction adds up `depth` products and the sum before,
// each cut to `fraction` bits below the largest exponent, and keeps `kept` bits of the result. Every `span` of K they go into an f32.
struct Number {
    int exponent, size;
    bool negative, nan;
};

__device__ Number number_of(int code, bool wide) {
    const int bits = wide ? 7 : 3, bias = wide ? 127 : 7, magnitude = code & (wide ? 0x7FFF : 0x7F), field = magnitude >> bits;
    return {max(field, 1) - bias, magnitude & ((1 << bits) - 1) | (field > 0) << bits, (code >> (wide ? 15 : 7) & 1) != 0,
            wide ? magnitude > 0x7F80 : magnitude == 0x7F};
}

// The columns that share an instruction: of bf16 16 that follow each other, of e4m3 of each 64 those with k / 8 even, then the others.
__device__ int column_of(int instruction, int i, bool wide) {
    return wide ? instruction * 16 + i : instruction / 2 * 64 + i / 8 * 16 + instruction % 2 * 8 + i % 8;
}

__device__ float sum_of(float a, float b) { float d; asm("add.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float fused(float a, float b, float c) { float d; asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c)); return d; }

// Row m of D is row source[m] of a (T, K) times the weights (G, N, K) of group[m]. K is a multiple of 64. `scales` (T, K / 128), or null.
extern "C" __global__ void sums_of(const unsigned short* a, const unsigned short* weights, const int* source, const int* group,
                                   const float* scales, float* sums, int M, int N, int K, int tokens, int wide, int span, int splits) {
    const long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at >= (long long)M * N) return;
    const int m = at / N, n = at % N, g = group[m], depth = wide ? 16 : 32, fraction = wide ? 25 : 13, kept = wide ? 24 : 14;
    if (g < 0) return;
    const bool exists = source[m] >= 0 && source[m] < tokens;
    const unsigned short* left = a + (exists ? source[m] * (long long)K : 0);
    const unsigned short* right = weights + (g * (long long)N + n) * K;
    const int blocks = (K + 255) / 256, of_product = wide ? 14 : 6;
    float total = 0;
    for (int split = 0; split < splits; split++) {
        const int begin = (long long)blocks * split / splits * 256, end = min(K, int((long long)blocks * (split + 1) / splits) * 256);
        float sum = 0;
        for (int first = begin; first < end; first += span) {
            double partial = 0;
            bool nan = false;
            for (int k = first; k < min(end, first + span); k += depth) {
                int top = -100000, exponent;
                if (partial != 0) frexp(partial, &exponent), top = exponent - 1;
                for (int i = 0; i < depth; i++) {
                    const int column = column_of(k / depth, i, wide);
                    const Number x = number_of(exists ? left[column] : 0, wide), y = number_of(right[column], wide);
                    nan |= x.nan || y.nan;
                    if (x.size && y.size) top = max(top, x.exponent + y.exponent);
                }
                if (top == -100000) continue;
                long long units = (long long)trunc(ldexp(partial, fraction - top));
                for (int i = 0; i < depth; i++) {
                    const int column = column_of(k / depth, i, wide);
                    const Number x = number_of(exists ? left[column] : 0, wide), y = number_of(right[column], wide);
                    if (!x.size || !y.size) continue;
                    const int up = fraction - of_product - (top - x.exponent - y.exponent);
                    const long long product = (long long)x.size * y.size;
                    const long long size = up >= 0 ? product << up : up > -40 ? product >> -up : 0;
                    units += x.negative != y.negative ? -size : size;
                }
                long long size = units < 0 ? -units : units;
                const int bits = 64 - __clzll(size);
                if (bits > kept) size = size >> (bits - kept) << (bits - kept);
                partial = ldexp((double)(units < 0 ? -size : size), top - fraction);
            }
            const float part = nan ? nanf("") : (float)partial;
            const float scale = scales != nullptr && exists ? scales[source[m] * (long long)((K + 127) / 128) + first / 128] : 0;
            sum = scales != nullptr ? fused(part, scale, sum) : wide ? part : sum_of(sum, part);
        }
        total = splits == 1 ? sum : sum_of(total, sum);
    }
    sums[at] = total;
}
"""
DENSE_AND_GROUPS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
OF_GROUPS = {"b", "b_scale", "b_row_scale", "bias"}
GROUPINGS = (*DENSE_AND_GROUPS, *(f"{grouping}.stored" for grouping in DENSE_AND_GROUPS))
WHOLE = 1 << 30  # a span that no K reaches
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class FourBitProblem(Problem):
    """A random problem of gemm.{fp8,bf16}_{nvfp4,mxfp4}.*."""

    def _length(self, most: int) -> int:
        return 32 * self._log(1, -(-most * 16 // 32) * (1 if self.random.random() < 0.8 else 4))

    def _make(self) -> None:
        self.stored = (self.epilogue or "").endswith("stored")
        self.with_nan = self.random.random() < 0.1
        tokens, self.weights_are = self.kernel.fields["formats"].split("_")
        self.wide = tokens == "bf16"
        self._make_weights()
        columns = -(-self.K // 64) * 64
        a = torch.zeros((self.tokens, columns), dtype=torch.int16, device="cuda")  # codes, what no number fills is 0
        a[:, : self.K] = self._codes_of_bf16() if self.wide else self._codes(self.tokens, self.K)
        self.codes = a
        if self.wide:
            self.given_a = self._laid_rows(a[:, : self.K], 8).view(torch.bfloat16)
        else:
            words = a.to(torch.uint8).unflatten(1, (-1, 4, 4, 4)).transpose(2, 3).flatten(1).contiguous()
            self.given_a = self._laid_rows(words, 16).view(torch.float8_e4m3fn)
        for option in sorted({"batch_invariant"} & set(self.kernel.options)):
            self.settings[option] = self.random.choice(("no", "no", "yes"))
        self.factors = self._factors()
        self.outputs = self._outputs(self.groups if self.grouping == "m_grouped_masked" else 1, self.random.choice((0, 0, 1, 5)))

    def _outputs(self, places: int, gap: int) -> list[Output]:
        return [Output("d", self.dtype, places, self.M // places, self.N, gap)]

    def _codes_of_bf16(self) -> torch.Tensor:
        values = torch.randn((self.tokens, self.K), generator=self.numbers, device="cuda")
        spread = torch.exp2(torch.rand((self.tokens, 1), generator=self.numbers, device="cuda") * self.random.choice((0, 4, 20)))
        values = values * spread ** torch.randn((self.tokens, self.K), generator=self.numbers, device="cuda")
        if self.with_nan:
            values[self.random.randrange(self.tokens), self.random.randrange(self.K)] = float("nan")
        return values.to(torch.bfloat16).view(torch.int16)

    def _laid_rows(self, array: torch.Tensor, unit: int) -> torch.Tensor:
        """Rows at multiples of 16 bytes, what lies between them NaN."""
        pitch = -(-array.shape[1] // unit) * unit + unit * self.random.choice((0, 0, 1, 3))
        whole = torch.full((len(array), pitch), 0x7FFF if self.wide else 0x7F, dtype=array.dtype, device="cuda")
        whole[:, : array.shape[1]] = array
        return whole[:, : array.shape[1]]

    def _laid_matrices(self, array: torch.Tensor, unit: int) -> torch.Tensor:
        """Rows at multiples of so many bytes, matrices one after the other, what lies between them anything."""
        pitch = -(-array.shape[2] // unit) * unit + unit * self.random.choice((0, 0, 1, 3))
        whole = torch.full((*array.shape[:2], pitch), 0xFF, dtype=torch.uint8, device="cuda")
        whole[..., : array.shape[2]] = array
        return whole[..., : array.shape[2]]

    def _make_weights(self) -> None:
        """Packed, and the codes that the tensor core multiplies, with the power of two that belongs to each row."""
        block = 16 if self.weights_are == "nvfp4" else 32
        shape = (self.groups, self.N, self.K)
        self.q = torch.randint(0, 256, (*shape[:2], self.K // 2), generator=self.numbers, device="cuda", dtype=torch.uint8)
        if self.random.random() < 0.3:  # rows and blocks of zeros
            self.q[torch.rand((*shape[:2], 1), generator=self.numbers, device="cuda").expand(self.q.shape) < 0.3] = 0
        near, spread = (56, self.random.choice((0, 8, 56))) if block == 16 else (120, self.random.choice((0, 7, 30, 120)))
        low, high = near - spread, near + spread + 1
        of_blocks = (*shape[:2], self.K // block)
        self.scales = torch.randint(low, high, of_blocks, generator=self.numbers, device="cuda", dtype=torch.int32).to(torch.uint8)
        if self.with_nan:
            one = [self.random.randrange(size) for size in of_blocks]
            self.scales[one[0], one[1], one[2]] = 0x7F if block == 16 else 0xFF
        codes = torch.stack((self.q & 15, self.q >> 4), -1).flatten(2).long()
        values = torch.tensor(MAGNITUDES + tuple(-x for x in MAGNITUDES), device="cuda", dtype=torch.float64)[codes]
        operands: dict[str, Any] = {"q": self.q, "b": torch.empty(0), "scales": self.scales.view(_DTYPE_OF_SCALES[self.weights_are])}
        if self.weights_are == "nvfp4":
            multipliers = self.scales.view(torch.float8_e4m3fn).double() / 8
            self.powers = torch.full(shape[:2], 8.0, device="cuda")
        else:
            bytes_of = self.scales.long()
            counts = (codes.unflatten(2, (-1, block)) % 8 != 0).any(3) & (bytes_of != 255)
            largest = torch.where(counts.any(2), torch.where(counts, bytes_of, 0).amax(2), 127)
            exponents = (bytes_of - largest[..., None] + 6).clamp(max=6)
            multipliers = torch.exp2(exponents.double())
            if self.wide:
                multipliers = torch.where(exponents < -119, 0.0, multipliers)
            multipliers = torch.where(bytes_of == 255, float("nan"), multipliers)
            self.powers = torch.exp2((largest - 133).double()).float()
            operands["row_scale"] = torch.empty((self.groups, -(-self.N // 64) * 64), dtype=torch.float8_e8m0fnu, device="cuda")
        tokens = "bf16" if self.wide else "fp8"
        in_chunks = (self.groups, -(-self.N // 64), -(-self.K // 64), *chunk_shape(block, tokens))
        operands["b"] = torch.empty(in_chunks, dtype=torch.uint8, device="cuda")
        gates = "plain" if self.stored else self.settings.get("gates", "plain")
        of_matrices(zoo).launch(f"pack.{self.weights_are}.fragments", gates=gates, tokens=tokens, **operands)
        if self.stored:
            operands["b"] = self._laid_matrices(self.q, 16)
            scales = self._laid_matrices(self.scales, self.random.choice((1, 4))).view(_DTYPE_OF_SCALES[self.weights_are])
        self.packed = {"b": operands["b"]} | ({"b_scale": scales} if self.stored else {})
        self.packed |= {"b_row_scale": operands["row_scale"]} if "row_scale" in operands else {}
        products = values * multipliers.repeat_interleave(block, 2)
        rounded = products.float().to(torch.bfloat16).view(torch.int16) if self.wide else products.float().to(torch.float8_e4m3fn)
        self.weights = torch.zeros((*shape[:2], -(-self.K // 64) * 64), dtype=torch.int16, device="cuda")
        self.weights[..., : self.K] = rounded if self.wide else rounded.view(torch.uint8).to(torch.int16)

    def _factors(self) -> dict[str, torch.Tensor]:
        """What is done to sums, of arguments that this problem gives."""

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=self.numbers, device="cuda") * 2.0 ** self.random.randint(-4, 4)

        found, self.block_scales = {}, None
        if "a_block_scale" in self.kernel.arguments and self.random.random() < 0.4:
            blocks = -(-self.codes.shape[1] // 128)
            self.block_scales = torch.exp2(torch.rand((self.tokens, blocks), generator=self.numbers, device="cuda") * 16 - 8)
            transposed = self.tokens > 1 and self.random.random() < 0.5
            found["a_block_scale"] = self.block_scales.T.contiguous().T if transposed else self.block_scales
        elif "a_scale" in self.kernel.arguments and self.random.random() < 0.6:
            found["a_scale"] = drawn(self.tokens).abs()
        if self.block_scales is None and "promotion" in self.kernel.options and self.random.random() < 0.3:
            self.settings["promotion"] = "never"
        if self.random.random() < 0.6:
            found["alpha"] = drawn(self.groups)
        if self.random.random() < 0.5:
            found["bias"] = drawn(self.groups, self.N).to(self.random.choice((torch.float32, torch.bfloat16)))
        if self.random.random() < 0.4:
            found["row_scale"] = drawn(self.M)
            if self.with_nan and self.M:
                found["row_scale"][self.random.randrange(self.M)] = self.random.choice((float("nan"), float("inf"), 0.0))
        return found

    def arguments(self) -> dict[str, Any]:
        given = {"a": self.given_a} | self.packed | self.factors | self.settings
        given |= {output.name: output.values(output.buffer) for output in self.outputs}
        if self.grouping == "m_grouped_masked":
            of_places = {"a", "a_scale", "a_block_scale", "row_scale"} & given.keys()
            given |= {name: given[name].unflatten(0, (self.groups, -1)) for name in of_places}
            if self.random.random() < 0.5:
                given["expected_rows"] = self.random.randint(1, 200)
        else:
            given |= {output.name: given[output.name][0] for output in self.outputs}
        if self.grouping == "dense":
            given |= {name: given[name][0] for name in OF_GROUPS & given.keys()}
        places = self.groups if self.grouping == "m_grouped_masked" else 1
        if "workspace" in self.kernel.arguments and 256 * places < self.M:  # some variants want it
            units = self.groups * -(-self.N // 128) * -(-self.K // 256) * 2
            given["workspace"] = torch.randint(0, 256, (units * (128 * 128 + 4) + 16,), dtype=torch.uint8, device="cuda")
        return given | {name: torch.tensor(values, dtype=torch.int32, device="cuda") for name, values in self.own.items()}

    def expected(self, kernels: cupy.RawModule, splits: int, where: numpy.ndarray | None) -> list[torch.Tensor]:
        return [self.outputs[0].expected(self.finished(kernels, splits), self.group >= 0)]

    def finished(self, kernels: cupy.RawModule, splits: int) -> torch.Tensor:
        """f32 sums times all that they are multiplied by, and what is added."""
        self.sums = self.products(kernels, splits)
        group, source, found = self.group.clamp(min=0).long(), self.source.long(), self.sums
        if "a_scale" in self.factors:
            exists = (source >= 0) & (source < self.tokens)
            of_rows = torch.where(exists, self.factors["a_scale"][source.clamp(0, max(self.tokens - 1, 0))], 0.0)
            found = found * of_rows[:, None]
        factors = self.powers
        if "alpha" in self.factors:
            factors = self.alphas() * factors
        found = found * factors[group]
        if "bias" in self.factors:
            found = found + self.factors["bias"].float()[group]
        return self.made(found, kernels)

    def alphas(self) -> torch.Tensor:
        """Of each row of b, or one of all."""
        return self.factors["alpha"][:, None]

    def made(self, found: torch.Tensor, kernels: cupy.RawModule) -> torch.Tensor:
        return found * self.factors["row_scale"][:, None] if "row_scale" in self.factors else found

    def products(self, kernels: cupy.RawModule, splits: int) -> torch.Tensor:
        sums = torch.zeros((self.M, self.N), device="cuda")
        arrays = (self.codes, self.weights, self.source, self.group)
        never = self.wide or self.settings.get("promotion") == "never"
        span = 128 if self.block_scales is not None else WHOLE if never else 256
        sizes = (self.M, self.N, self.codes.shape[1], self.tokens, self.wide, span, splits)
        scales = numpy.uint64(0) if self.block_scales is None else self.block_scales.data_ptr()
        values = (*(x.data_ptr() for x in arrays), scales, sums.data_ptr(), *map(numpy.int32, sizes))
        kernels.get_function("sums_of")((-(-self.M * self.N // 128),), (128,), values)
        return sums

    def by_reference(self, splits: int) -> numpy.ndarray:
        dtype = ml_dtypes.bfloat16 if self.wide else ml_dtypes.float8_e4m3fn

        def host(array: torch.Tensor) -> numpy.ndarray:
            codes: numpy.ndarray = array.cpu().numpy().astype(numpy.uint16 if self.wide else numpy.uint8)
            return codes.view(dtype)

        def multiplied(a: numpy.ndarray, weights: numpy.ndarray, block_scales: numpy.ndarray | None) -> numpy.ndarray:
            if self.wide:
                return gemm_bf16_by_four_bit(a, weights, splits)
            return gemm_fp8_by_four_bit(a, weights, self.settings.get("promotion", "256"), block_scales, splits)

        group, source = self.group.cpu().numpy(), self.source.cpu().numpy()
        sums = numpy.zeros((self.M, self.N), numpy.float32)
        for g in range(self.groups):
            own = numpy.flatnonzero(group == g)
            if len(own):
                exists = (source[own] >= 0) & (source[own] < self.tokens)
                rows = host(self.codes)[numpy.where(exists, source[own], 0)]
                rows = numpy.where(exists[:, None], rows.view(numpy.uint8 if not self.wide else numpy.uint16), 0).astype(
                    numpy.uint16 if self.wide else numpy.uint8
                )
                scales = None if self.block_scales is None else self.block_scales.cpu().numpy()[numpy.where(exists, source[own], 0)]
                if scales is not None:
                    scales = numpy.where(exists[:, None], scales, numpy.float32(0))
                sums[own] = multiplied(rows.view(dtype), host(self.weights[g]), scales)
        return sums

    def differs_from_reference(self, splits: int, where: numpy.ndarray | None) -> bool:
        return not numpy.array_equal(self.sums.cpu().numpy(), self.by_reference(splits), equal_nan=True)

    def words(self) -> str:
        said = [f"{self.name} M {self.M} N {self.N} K {self.K} G {self.groups} {self.dtype}", *self.own, *self.factors]
        return " ".join([*said, *self.settings.values()])


_DTYPE_OF_SCALES = {"nvfp4": torch.float8_e4m3fn, "mxfp4": torch.float8_e8m0fnu}

if __name__ == "__main__":
    sys.exit(
        soak_from_the_command_line(
            __doc__, tuple(f"gemm.{tokens}_*4.{grouping}" for tokens in ("fp8", "bf16") for grouping in GROUPINGS), SOURCE, FourBitProblem
        )
    )
