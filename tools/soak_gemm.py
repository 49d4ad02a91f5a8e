"""Random problems for gemm.fp8b128.* on a GPU, every byte of what is written and of what lies around it compared.

    python tools/soak_gemm.py [--cubins DIR] [--count 10000] [--seed 0] [--only 'gemm.fp8b128.m_grouped_*'] [--small]

The answers come from two scalar CUDA kernels of this file, one thread an element, integers for the tensor core's sums, divisions
for silu; float64 quantises. They share no code with the GEMMs. In the first problems they are held to zoo.reference, and a bit is
turned over in a right answer to see that the comparison finds it. Half of the problems take the variant that zoo chooses, the
others that which has run least of those that fit.
Ends with 1 where anything differs; every difference is printed with the seed of its problem.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import random
import sys
import time
from pathlib import Path
from typing import Any

import cupy
import ml_dtypes
import numpy
import torch

import zoo
from zoo.checks.shared_rest import shared, shares_rest
from zoo.contract.manifest import Kernel
from zoo.errors import VariantError
from zoo.packaged import packaged
from zoo.reference.block_formats import block_format
from zoo.reference.block_scaled_epilogues import Gates, made_of_sums
from zoo.reference.gemm import gemm_fp8b128, gemm_fp8b128_k_grouped
from zoo.reference.quantize import quantize_rows

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.lab.viewed import of_matrices

SOURCE = r"""
// CuPy compiles with -ftz=true, which makes zeros of the subnormal numbers that __fmul_rn and its like meet; PTX is as written.
__device__ float product(float a, float b) { float d; asm("mul.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float sum_of(float a, float b) { float d; asm("add.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float quotient(float a, float b) { float d; asm("div.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float larger_of(float a, float b) { float d; asm("max.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float fused(float a, float b, float c) { float d; asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c)); return d; }

// Sums of row m of D: of row source[m] of a (zeros where it has none) with the weights of group[m] (not at all where -1), along
// length[m] of K from begin[m] on, whose first block has the scales of block first[m]. A scale of b is for scale_rows of its rows.
extern "C" __global__ void sums_of(const unsigned char* a, const float* a_scale, const unsigned char* b, const float* b_scale,
                                   const int* source, const int* group, const int* begin, const int* length, const int* first_block, float* sums,
                                   int M, int N, int tokens, int scale_rows, int splits,
                                   long long a_row, long long as_row, long long as_block, long long b_group, long long b_row,
                                   long long bs_group, long long bs_row, long long bs_block) {
    const long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at >= (long long)M * N) return;
    const int m = at / N, n = at % N, g = group[m], K = length[m], blocks = (K + 127) / 128;
    if (g < 0) return;
    const bool exists = source[m] >= 0 && source[m] < tokens;
    const unsigned char* left = a + (exists ? source[m] * a_row : 0) + begin[m];
    const unsigned char* right = b + g * b_group + n * b_row + begin[m];
    float total = 0;
    for (int split = 0; split < splits; split++) {
        float sum = 0;
        for (int block = (long long)blocks * split / splits; block < (long long)blocks * (split + 1) / splits; block++) {
            double partial = 0;
            bool nan = false;
            for (int first = block * 128; first < min(K, block * 128 + 128); first += 32) {
                const int last = min(K, first + 32);
                int top = -1000, exponent;
                if (partial != 0) frexp(partial, &exponent), top = exponent - 1;
                for (int k = first; k < last; k++) {
                    const int x = exists ? left[k] & 127 : 0, y = right[k] & 127;
                    nan |= x == 127 || y == 127;
                    if (x && y) top = max(top, max(x >> 3, 1) + max(y >> 3, 1) - 14);
                }
                if (top == -1000) continue;
                int units = (int)trunc(ldexp(partial, 13 - top));
                for (int k = first; k < last; k++) {
                    const int x = exists ? left[k] & 127 : 0, y = right[k] & 127;
                    if (!x || !y) continue;
                    const int product = ((x & 7) | (x > 7) << 3) * ((y & 7) | (y > 7) << 3);
                    const int down = top - (max(x >> 3, 1) + max(y >> 3, 1) - 14);
                    const int size = down <= 7 ? product << (7 - down) : down < 32 ? product >> (down - 7) : 0;
                    units += (left[k] ^ right[k]) & 128 ? -size : size;
                }
                int size = abs(units);
                const int bits = 32 - __clz(size);
                if (bits > 14) size = size >> (bits - 14) << (bits - 14);
                partial = ldexp((double)(units < 0 ? -size : size), top - 13);
            }
            const int at_block = first_block[m] + block;
            const float scale_a = exists ? a_scale[source[m] * as_row + at_block * as_block] : 0;
            const float scale = product(scale_a, b_scale[g * bs_group + n / scale_rows * bs_row + at_block * bs_block]);
            sum = fused(nan ? nanf("") : (float)partial, scale, sum);
        }
        total = splits == 1 ? sum : sum_of(total, sum);
    }
    sums[at] = total;
}

// h = silu(gate) * up as zoo/reference/swiglu.py has it: gate and up of column n lie at n * step and to_up further.
extern "C" __global__ void activated(const float* sums, float* h, int M, int columns, int step, int to_up) {
    const long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at >= (long long)M * columns) return;
    const float* gate = sums + at / columns * 2 * columns + at % columns * step;
    const float g = *gate, t = larger_of(product(fabsf(g), -0x1.715476p+0f), -127.0f), n = rintf(t), f = sum_of(t, -n);
    const float coefficients[] = {0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1.0f};
    float p = 0;
    for (int i = 0; i < 6; i++) p = fused(p, f, coefficients[i]);
    const float e = __int_as_float(__float_as_int(p) + (int)n * (1 << 23)), ge = product(g, e);
    const float larger = isnan(g) || isnan(ge) ? nanf("") : larger_of(g, ge);
    h[at] = product(product(larger, quotient(1.0f, sum_of(1.0f, e))), gate[to_up]);
}
"""
DTYPES = {
    "bf16": (torch.bfloat16, torch.int16, 0x7FFF),
    "f16": (torch.float16, torch.int16, 0x7FFF),
    "f32": (torch.float32, torch.int32, 0x7FFFFFFF),
    "e4m3": (torch.float8_e4m3fn, torch.uint8, 0x7F),
}
SILENCE = 10  # seconds
POISON = {torch.uint8: 0x5A, torch.int16: 0x5A5A, torch.int32: 0x5A5A5A5A}


class Output:
    """A matrix for each group in a buffer of poison; rows some elements apart, or columns, if `transposed`."""

    def __init__(self, name: str, dtype: str, groups: int, rows: int, columns: int, gap: int, transposed: bool = False):
        self.name, self.groups, self.transposed = name, groups, transposed
        self.dtype, self.bits, self.nan = DTYPES[dtype]
        self.lines, self.line = (columns, rows) if transposed else (rows, columns)
        unit = 16 // self.dtype.itemsize if name != "scales" else 1
        self.pitch = -(-self.line // unit) * unit + unit * gap
        self.buffer = torch.full((64 + groups * self.lines * self.pitch + 64,), POISON[self.bits], dtype=self.bits, device="cuda")
        self.before = self.buffer.clone()

    def elements(self, buffer: torch.Tensor) -> torch.Tensor:
        lines = buffer[64:-64].view(self.groups, self.lines, self.pitch)[..., : self.line]
        return lines.transpose(1, 2) if self.transposed else lines

    def start_from(self, values: torch.Tensor) -> None:
        self.elements(self.buffer).copy_(values.to(self.dtype).view(self.bits).unflatten(0, (self.groups, -1)))
        self.before = self.buffer.clone()

    def expected(self, values: torch.Tensor, owned: torch.Tensor) -> torch.Tensor:
        """The buffer afterwards: `values` of all groups' rows, where they are somebody's."""
        result = self.before.clone()
        rounded = torch.where(values.isnan(), self.nan, values.to(self.dtype).view(self.bits)).unflatten(0, (self.groups, -1))
        self.elements(result).copy_(torch.where(owned.view(self.groups, -1, 1), rounded, self.elements(result)))
        return result

    def values(self, buffer: torch.Tensor) -> torch.Tensor:
        return self.elements(buffer).view(self.dtype)


class Problem:
    """One random problem of a kernel: arguments on the GPU, and which rows of D are whose."""

    def __init__(self, kernel: Kernel, seed: int, small: bool):
        self.random, self.name = random.Random(seed), kernel.name
        self.numbers = torch.Generator(device="cuda").manual_seed(seed)
        self.grouping = kernel.fields["grouping"]
        self.kernel, self.epilogue = kernel, kernel.fields.get("extra")
        self.settings: dict[str, str] = {}
        most = 64 if small else 640
        self.N = self._columns(small)
        self.K = self._length(24 if small else 96)
        self.groups = 1 if self.grouping == "dense" else self._log(1, 8 if small else 100)
        if self.groups > 1 and self.random.random() < 0.1:  # more than a warp has lanes, several times
            self.groups, self.K = self._log(33, 80 if small else 1500), self._length(4)
        rows = self._log(1, most)
        self.along_k, self.accumulated, self.c_dtype = self.grouping == "k_grouped", False, None
        if self.along_k:
            group = self._groups_along_k(rows, small)
        elif self.grouping == "m_grouped_masked":
            rows = self._log(2, max(3, 2 * most // self.groups))  # with one, nothing would say how far apart rows are
            used = [self.random.choice((0, rows, self.random.randint(0, rows))) for _ in range(self.groups)]
            self.M = self.groups * rows
            group = [g if r < used[g] else -1 for g in range(self.groups) for r in range(rows)]
            self.own = {"rows": used}
        else:
            sizes = self._sizes(rows)
            self.M = sum(sizes) + self.random.choice((0, 0, 1, 37))
            group = [g for g, size in enumerate(sizes) for _ in range(size)]
            group += [-1] * (self.M - len(group))
            self.own = {"offsets": numpy.cumsum(sizes).tolist()}
        if self.grouping == "dense":
            group, self.own = [0] * self.M, {}
        if "c" in kernel.arguments:
            self.c_dtype = self.random.choice((None, None, *kernel.arguments["c"].dtypes))
        if "m_indices" in kernel.arguments and self.random.random() < 0.5:
            group = self._padded(group)
            self.own, self.M = {"m_indices": group}, len(group)
        self.tokens = self.M if not self.along_k else rows
        source = [m % self.tokens for m in range(self.M)]
        if self.grouping == "m_grouped_gather":
            self.tokens = self._log(1, max(2, self.M))
            source = [self.random.choice((-1, t)) if t % 7 == 0 else t for t in self.random.choices(range(self.tokens), k=self.M)]
            self.own["index"] = [s if g >= 0 else 2**31 - 1 for s, g in zip(source, group, strict=True)]
        if not self.along_k:
            self.begin, self.length, self.first_block = [0] * self.M, [self.K] * self.M, [0] * self.M
        self.dtype = self.random.choice(kernel.arguments["d"].dtypes) if "d" in kernel.arguments else "e4m3"
        of_rows = (source, group, self.begin, self.length, self.first_block)
        self.source, self.group, self.begin, self.length, self.first_block = (
            torch.tensor(x, dtype=torch.int32, device="cuda") for x in of_rows
        )
        self._make()

    def _log(self, least: int, most: int) -> int:
        return min(most, int(least * (most / least + 1) ** self.random.random()))

    def _length(self, most: int) -> int:
        """K, of at most so many 16."""
        return 16 * self._log(1, most)

    def _columns(self, small: bool) -> int:
        """N, of gates and ups together where there are such."""
        if "gates" not in self.kernel.options:
            return 8 * self._log(1, 8 if small else 80)
        self.settings["gates"] = self.random.choice(("halves", "interleaved"))
        unit = 64 if self.settings["gates"] == "halves" else 16 if self.epilogue == "swiglu_fp8b128" else 8
        return 2 * unit * self._log(1, max(2, (64 if small else 384) // unit))

    def _sizes(self, rows: int) -> list[int]:
        if self.random.random() < 0.2:  # one has all
            sizes = [0] * self.groups
            sizes[self.random.randrange(self.groups)] = rows
            return sizes
        cuts = sorted(self.random.randint(0, rows) for _ in range(self.groups - 1))
        return [end - begin for begin, end in zip([0, *cuts], [*cuts, rows], strict=True)]

    def _groups_along_k(self, rows: int, small: bool) -> list[int]:
        """Groups at multiples of 16, the last of any length; rows of D for each group, nobody's where nothing is to be added."""
        self.groups = self._log(1, 8 if small else 24)
        sizes = [16 * size for size in self._sizes(self.K // 16)]
        if sizes[-1]:
            sizes[-1] -= self.random.choice((0, self.random.randrange(16)))
        self.K = sum(sizes) + self.random.choice((0, 0, 1, 37))
        ends, blocks = numpy.cumsum(sizes).tolist(), numpy.cumsum([-(-size // 128) for size in sizes]).tolist()
        self.begin = numpy.repeat([0, *ends[:-1]], rows).tolist()
        self.length, self.first_block = numpy.repeat(sizes, rows).tolist(), numpy.repeat([0, *blocks[:-1]], rows).tolist()
        self.own, self.M, self.accumulated = {"offsets": ends}, self.groups * rows, self.random.random() < 0.5
        return numpy.repeat([-1 if self.accumulated and not size else 0 for size in sizes], rows).tolist()

    def _padded(self, group: list[int]) -> list[int]:
        """With rows of nobody between groups; sometimes in tiles of 128, as DeepGEMM's callers have them."""
        unit, result = self.random.choice((1, 8, 128)), []
        for one in sorted(set(group)):
            result += [one] * group.count(one)
            result += [-1] * (-len(result) % unit)
        return result or [-1]

    def _codes(self, *shape: int) -> torch.Tensor:
        """Half of the rows any numbers, half normal ones; NaN in few problems."""
        codes = torch.randint(0, 256, shape, generator=self.numbers, device="cuda", dtype=torch.int16)
        if not self.with_nan:
            codes = torch.where(codes & 127 == 127, codes - 1, codes)
        normal = torch.randn(shape, generator=self.numbers, device="cuda").to(torch.float8_e4m3fn).view(torch.uint8)
        which = torch.rand((*shape[:-1], 1), generator=self.numbers, device="cuda") < 0.5
        return torch.where(which, codes.to(torch.uint8), normal)

    def _laid(self, array: torch.Tensor, unit: int) -> torch.Tensor:
        """Rows some units apart, what lies between them NaN."""
        gap = unit * self.random.choice((0, 0, 1, 3))
        aligned = array.dtype == torch.uint8 or self.along_k  # scales are read by their strides, but where tensor copies bring them
        pitch = (-(-array.shape[-1] // unit) * unit if aligned else array.shape[-1]) + gap
        nan = 255 if array.dtype == torch.uint8 else float("nan")
        whole = torch.full((*array.shape[:-1], pitch), nan, dtype=array.dtype, device="cuda")
        whole[..., : array.shape[-1]] = array
        return whole[..., : array.shape[-1]]

    def _scales(self, *shape: int, lower: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """f32, and as the kernel is given them: those that are powers of two may be bytes."""
        exponents = torch.rand(shape, generator=self.numbers, device="cuda") * 16 - 8 - lower
        as_bytes, transposed = self.random.random() < 0.3, self.along_k or self.random.random() < 0.5
        scales = torch.exp2(exponents.round() if as_bytes else exponents)
        given = (scales.view(torch.int32) >> 23).to(torch.uint8) if as_bytes else scales
        unit = 16 // given.itemsize if transposed else 1
        given = self._laid(given.transpose(-1, -2), unit).transpose(-1, -2) if transposed else self._laid(given, unit)
        return scales, given.view(torch.float8_e8m0fnu) if as_bytes else given

    def _make(self) -> None:
        self.with_nan = self.random.random() < 0.1
        blocks, n_blocks = -(-self.K // 128), -(-self.N // 128)
        groups, self.scale_rows = self.groups, 128
        if self.along_k:
            blocks, n_blocks, groups, self.scale_rows = blocks + self.groups, self.N, 1, 1
        a, b = self._laid(self._codes(self.tokens, self.K), 16), self._laid(self._codes(groups, self.N, self.K), 16)
        self.a, self.b = a, b
        lower = self.random.randint(0, 16) if self.epilogue else 0  # silu bends around 1
        self.a_scale, self.given_a_scale = self._scales(self.tokens, blocks, lower=lower)
        self.b_scale, self.given_b_scale = self._scales(groups, n_blocks, blocks)
        if self.tokens == 1 and not self.along_k:  # a row alone may have any stride
            self.given_a_scale = self.given_a_scale.contiguous()
        columns, gap = self.N // 2 if self.epilogue else self.N, self.random.choice((0, 0, 1, 5))
        places = self.groups if self.grouping in ("m_grouped_masked", "k_grouped") else 1
        rows, name = self.M // places, "q" if self.dtype == "e4m3" else "d"
        self.outputs = [Output(name, self.dtype, places, rows, columns, gap)]
        if self.dtype == "e4m3":
            self.settings["scaling"] = self.random.choice(("exact", "pow2"))
            transposed = self.random.random() < 0.5
            self.outputs.append(Output("scales", "f32", places, rows, -(-columns // 128), gap, transposed))
        for option in sorted({"batch_invariant", "b_constant"} & set(self.kernel.options)):
            self.settings[option] = self.random.choice(("no", "no", "yes"))
        self.row_scale = None
        if "row_scale" in self.kernel.arguments and self.random.random() < 0.4:
            self.row_scale = torch.rand(self.M, generator=self.numbers, device="cuda") * self.random.choice((1, 1, -3))
            if self.with_nan:
                self.row_scale[self.random.randrange(self.M)] = self.random.choice((float("nan"), float("inf"), 0.0))
        if self.accumulated:
            before = torch.randn((self.M, self.N), generator=self.numbers, device="cuda") * 2.0 ** self.random.randint(-4, 12)
            self.outputs[0].start_from(before)
        self.c = None
        if self.c_dtype:
            c = torch.randn((self.M, self.N + 8 * self.random.choice((0, 0, 1))), generator=self.numbers, device="cuda") * 100
            self.c = c.to(DTYPES[self.c_dtype][0])[:, : self.N]

    def arguments(self) -> dict[str, Any]:
        given = {"a": self.a, "a_scale": self.given_a_scale, "b": self.b, "b_scale": self.given_b_scale} | self.settings
        given |= {output.name: output.values(output.buffer) for output in self.outputs}
        if self.grouping not in ("m_grouped_masked", "k_grouped"):
            given |= {output.name: given[output.name][0] for output in self.outputs}
        if self.grouping in ("dense", "k_grouped"):
            given |= {"b": self.b[0], "b_scale": self.given_b_scale[0]}
        if self.c is not None:
            given["c"] = self.c
        if self.row_scale is not None:
            given["row_scale"] = self.row_scale
        if self.along_k:
            given |= {"a_scale": self.given_a_scale, "b_scale": self.given_b_scale[0]}
            given["accumulate"] = "yes" if self.accumulated else "no"
        if self.grouping == "m_grouped_masked":
            given |= {name: given[name].unflatten(0, (self.groups, -1)) for name in {"a", "a_scale", "row_scale"} & given.keys()}
            if self.random.random() < 0.5:
                given["expected_rows"] = self.random.randint(1, 200)
        if "workspace" in self.kernel.arguments and self.random.random() < 0.7:  # some variants want it
            units = -(-self.M // 16)
            size = -(-(self.M * self.K) // 128) * 128 + (16 * units * -(-self.K // 128) + units + 4) * 4
            given["workspace"] = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        return given | {name: torch.tensor(values, dtype=torch.int32, device="cuda") for name, values in self.own.items()}

    def expected(self, kernels: cupy.RawModule, splits: int, where: numpy.ndarray | None) -> list[torch.Tensor]:
        """What the buffers of the outputs must hold; K is split for elements `where` this is true, or for all."""
        sums = self.products(kernels, splits)
        if where is not None:
            sums = torch.where(torch.from_numpy(where).cuda(), sums, self.products(kernels, 1))
        self.sums, added, owned = sums, sums, self.group >= 0
        if self.epilogue:
            added = torch.zeros((self.M, self.N // 2), device="cuda")
            step, to_up = (1, self.N // 2) if self.settings["gates"] == "halves" else (2, 1)
            values = (sums.data_ptr(), added.data_ptr(), *map(numpy.int32, (self.M, self.N // 2, step, to_up)))
            kernels.get_function("activated")((-(-self.M * self.N // 256),), (128,), values)
        if self.row_scale is not None:
            added = added * self.row_scale[:, None]
        if self.c is not None:
            added = self.c.float() + added
        if self.accumulated:
            flushed = _flushed if self.dtype == "f32" else torch.clone
            before = self.outputs[0].values(self.outputs[0].before).flatten(0, 1).float()
            added = flushed(flushed(before) + flushed(sums))
        self.answers = [added] if self.dtype != "e4m3" else quantised(added, self.settings["scaling"] == "pow2")
        return [output.expected(answer, owned) for output, answer in zip(self.outputs, self.answers, strict=True)]

    def products(self, kernels: cupy.RawModule, splits: int) -> torch.Tensor:
        """The f32 sums."""
        sums = torch.zeros((self.M, self.N), device="cuda")
        count = self.M * self.N
        arrays: tuple[Any, ...] = (
            self.a,
            self.a_scale,
            self.b,
            self.b_scale,
            self.source,
            self.group,
            self.begin,
            self.length,
            self.first_block,
            sums,
        )
        numbers = (self.M, self.N, self.tokens, self.scale_rows, splits)
        strides = (self.a.stride(0), *self.a_scale.stride(), *self.b.stride()[:2], *self.b_scale.stride())
        values = (*(x.data_ptr() for x in arrays), *map(numpy.int32, numbers), *map(numpy.int64, strides))
        kernels.get_function("sums_of")((-(-count // 128),), (128,), values)
        return sums

    def by_reference(self, splits: int) -> numpy.ndarray:
        """The sums, by zoo.reference."""

        def host(array: torch.Tensor) -> numpy.ndarray:
            copied: numpy.ndarray = array.cpu().contiguous().numpy()
            return copied.view(ml_dtypes.float8_e4m3fn) if copied.dtype == numpy.uint8 else copied

        a, a_scale, b, b_scale, source, group = map(host, (self.a, self.a_scale, self.b, self.b_scale, self.source, self.group))
        if self.along_k:
            sums = gemm_fp8b128_k_grouped(a, a_scale, b[0], b_scale[0], numpy.array(self.own["offsets"])).reshape(self.M, self.N)
            return numpy.where((group >= 0)[:, None], sums, numpy.float32(0))
        sums = numpy.zeros((self.M, self.N), numpy.float32)
        for g in range(self.groups):
            rows = group == g
            if rows.any():
                there = (source[rows] >= 0)[:, None]
                own = numpy.where(there, a[source[rows]].view(numpy.uint8), numpy.uint8(0)).view(a.dtype)
                sums[rows] = gemm_fp8b128(own, numpy.where(there, a_scale[source[rows]], numpy.float32(0)), b[g], b_scale[g], splits)
        return sums

    def differs_from_reference(self, splits: int, where: numpy.ndarray | None) -> bool:
        """This file's answers, not the GPU's."""
        sums, owned = self.by_reference(splits), (self.group >= 0).cpu().numpy()
        if where is not None:
            sums = numpy.where(where, sums, self.by_reference(1))
        differ = not numpy.array_equal(self.sums.cpu().numpy(), sums, equal_nan=True)
        if self.epilogue:
            factors = None if self.row_scale is None else self.row_scale.cpu().numpy()
            h = made_of_sums(sums, Gates(self.settings["gates"]), row_scale=factors)
            if self.dtype == "e4m3":
                result = quantize_rows(h, block_format("fp8b128", scaling=self.settings.get("scaling", "exact")))
                rights: list[numpy.ndarray] = [result.q.view(numpy.uint8), result.scales]
            else:
                rights = [h]
            for answer, right in zip(self.answers, rights, strict=True):
                answer = (
                    torch.where(answer.isnan(), 0x7F, answer.to(torch.float8_e4m3fn).view(torch.uint8)) if right.itemsize == 1 else answer
                )
                differ |= not numpy.array_equal(answer.cpu().numpy()[owned], right[owned], equal_nan=right.itemsize > 1)
        return differ

    def words(self) -> str:
        said = [f"{self.name} M {self.M} N {self.N} K {self.K} G {self.groups} {self.dtype}", *self.own, *self.settings.values()]
        said += [f"scales {self.given_a_scale.dtype} {self.given_b_scale.dtype}".replace("torch.", "")]
        said += [f"c {self.c_dtype}"] * (self.c is not None) + ["accumulated"] * self.accumulated
        return " ".join(said + ["row_scale"] * (self.row_scale is not None))


def _flushed(values: torch.Tensor) -> torch.Tensor:
    """What the L2 cache adds: subnormal numbers are zeros."""
    return torch.where(values.abs() < 2.0**-126, torch.copysign(torch.zeros_like(values), values), values)


def quantised(h: torch.Tensor, pow2: bool) -> list[torch.Tensor]:
    """Before it is rounded to e4m3, and its scales. Quotients of f32 come out right by way of float64."""
    blocks = -(-h.shape[1] // 128)
    whole = torch.nn.functional.pad(h, (0, blocks * 128 - h.shape[1])).unflatten(1, (blocks, 128))
    amax = whole.abs().amax(2)  # NaN if one is
    scales = (amax.double() / 448).float()
    if pow2:
        exponent = torch.frexp((amax * (1 / torch.tensor(448.0, device="cuda"))).double())
        up = torch.where(exponent.mantissa == 0.5, exponent.exponent - 1, exponent.exponent)
        scales = torch.exp2(up.double()).float()
    scales = torch.where(amax == 0, 1.0, scales.clamp(min=2.0**-126))
    scales = torch.where(amax.isfinite(), scales, float("nan"))
    inverse = (1 / scales.double()).float()
    return [(whole * inverse[:, :, None]).flatten(1)[:, : h.shape[1]], scales]


def run(collection: zoo.Zoo, problem: Problem, ran: collections.Counter[tuple[str, str]]) -> tuple[str, int, numpy.ndarray | None] | None:
    """(variant, its splits, which elements of D they are for, unless all); the results are in the buffers of the problem's outputs then.
    None where no variant takes the problem, which may be in a folder of a few."""
    arguments = problem.arguments()
    kernel = collection.kernel(problem.name)
    names = [v.name for v in kernel.variants if v.arch == "sm_90a" and v.dtypes.get("d", problem.dtype) == problem.dtype]
    problem.random.shuffle(names)
    names.sort(key=lambda name: ran[problem.name, name])
    for wanted in problem.random.choice(((None, *names), (*names, None))):
        try:
            plan = collection.prepare(problem.name, variant=wanted, **arguments)
            break
        except VariantError:
            if wanted is None and collection is packaged:
                raise
    else:
        return None
    if problem.settings.get("b_constant") == "yes":
        torch.cuda.synchronize()  # what made b has ended
    plan(torch.cuda.current_stream().cuda_stream)
    variant = plan.launch.variant
    if problem.grouping == "dense" and shares_rest(variant):
        count = torch.cuda.get_device_properties(0).multi_processor_count
        invariant = problem.settings.get("batch_invariant") == "yes"
        return variant.name, *shared(kernel, variant, (problem.M, problem.N, problem.K), count, invariant)
    return variant.name, variant.constants.get("SPLITS", 1), None


def soak_from_the_command_line(about: str, patterns: tuple[str, ...], source: str, problem_of: type[Problem]) -> int:
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--cubins")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*")
    parser.add_argument("--small", action="store_true", help="for compute-sanitizer")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then, and say how many ran")
    arguments = parser.parse_args()
    collection = of_matrices(zoo.Zoo(arguments.cubins) if arguments.cubins else packaged)
    names = [
        name
        for name in collection.manifest.names
        if fnmatch.fnmatch(name, arguments.only) and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    kernels = cupy.RawModule(code=source, options=("--std=c++17",))
    with torch.cuda.stream(torch.cuda.Stream()), cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        return soak(collection, names, kernels, problem_of, arguments)


def soak(collection: zoo.Zoo, names: list[str], kernels: cupy.RawModule, problem_of: type[Problem], arguments: argparse.Namespace) -> int:
    started, wrong, left_out = time.monotonic(), 0, 0
    ran: collections.Counter[tuple[str, str]] = collections.Counter()
    said_at = started
    for number in range(arguments.count):
        if time.monotonic() - started > arguments.seconds:
            break
        if time.monotonic() - said_at > SILENCE:
            said_at = time.monotonic()
            print(f"{number} of {arguments.count} problems, {wrong} wrong, {said_at - started:.0f} s", flush=True)
        seed = arguments.seed * 1_000_000 + number
        problem = problem_of(collection.kernel(names[number % len(names)]), seed, arguments.small)
        outcome = run(collection, problem, ran)
        if outcome is None:
            left_out += 1
            continue
        variant, splits, where = outcome
        expected = problem.expected(kernels, splits, where)
        if number < 6 * len(names) and problem.M * problem.N * problem.K < 4e6:  # is the answer right?
            if problem.differs_from_reference(splits, where):
                print(f"seed {seed}: {problem.words()}: this file's answers differ from zoo.reference", flush=True)
                wrong += 1
            for output, right in zip(problem.outputs, expected, strict=True):
                broken = right.clone()
                broken[len(broken) // 2] ^= 1
                if torch.equal(broken, output.buffer):
                    raise AssertionError("a turned bit was not seen")
        for output, right in zip(problem.outputs, expected, strict=True):
            places = (right != output.buffer).nonzero().flatten()
            if len(places):
                print(
                    f"seed {seed}: {problem.words()} {variant}: {len(places)} elements of {output.name}'s buffer differ, "
                    f"first {places[0].item() - 64}",
                    flush=True,
                )
                wrong += 1
        ran[(problem.name, variant)] += 1
    total = sum(ran.values())
    said = f"{total} problems on {len(ran)} variants of {len(names)} kernels, {wrong} wrong"
    print(f"{said}, {left_out} that no variant takes, {time.monotonic() - started:.1f} s")
    available = {(n, v.name) for n in names for v in collection.kernel(n).variants if v.arch == "sm_90a"}
    missed = sorted(available - set(ran))
    print(f"variants that no problem took: {len(missed)}" + "".join(f"\n    {name} {variant}" for name, variant in missed[:10]))
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(soak_from_the_command_line(__doc__, ("gemm.fp8b128.*",), SOURCE, Problem))
