"""Random problems for gemm.fp8b128.* on a GPU, every byte of D and of what lies around it compared.

    python tools/soak_gemm.py [--cubins DIR] [--count 10000] [--seed 0] [--only 'gemm.fp8b128.m_grouped_*'] [--small]

The answers come from a scalar CUDA kernel of this file: one thread an element, integers for the tensor core's sums. It shares
no code with the GEMMs. Before the problems, it is held to zoo.reference on some of them, and a bit is turned over in a right
answer to see that the comparison finds it. Half of the problems take the variant that zoo chooses, the others any that fits.
Ends with 1 where anything differs; every difference is printed with the seed of its problem.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import random
import sys
import time

import cupy
import ml_dtypes
import numpy
import torch

import zoo
from zoo.errors import VariantError
from zoo.manifest import Kernel
from zoo.packaged import packaged
from zoo.reference.gemm import gemm_fp8b128, gemm_fp8b128_k_grouped

SOURCE = r"""
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
            const float scale = __fmul_rn(scale_a, b_scale[g * bs_group + n / scale_rows * bs_row + at_block * bs_block]);
            sum = __fmaf_rn(nan ? nanf("") : (float)partial, scale, sum);
        }
        total = splits == 1 ? sum : __fadd_rn(total, sum);
    }
    sums[at] = total;
}
"""
DTYPES = {"bf16": (torch.bfloat16, torch.int16, 0x7FFF), "f16": (torch.float16, torch.int16, 0x7FFF), "f32": (torch.float32, torch.int32, 0x7FFFFFFF)}
POISON = 0x5A


class Problem:
    """One random problem of a kernel: arguments on the GPU, and which rows of D are whose."""

    def __init__(self, kernel: Kernel, seed: int, small: bool):
        self.random, self.name = random.Random(seed), kernel.name
        self.numbers = torch.Generator(device="cuda").manual_seed(seed)
        self.grouping = kernel.fields["grouping"]
        most = 64 if small else 640
        self.N = 8 * self._log(1, 8 if small else 80)
        self.K = 16 * self._log(1, 24 if small else 96)
        self.groups = 1 if self.grouping == "dense" else self._log(1, 8 if small else 100)
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
            self.c_dtype = self.random.choice((None, None, *kernel.arguments["c"].dtypes))
        if self.grouping == "m_grouped_contiguous" and self.random.random() < 0.5:
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
        self.dtype = self.random.choice(kernel.arguments["d"].dtypes)
        of_rows = (source, group, self.begin, self.length, self.first_block)
        self.source, self.group, self.begin, self.length, self.first_block = (torch.tensor(x, dtype=torch.int32, device="cuda") for x in of_rows)
        self._make()

    def _log(self, least: int, most: int) -> int:
        return min(most, int(least * (most / least + 1) ** self.random.random()))

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

    def _scales(self, *shape: int) -> torch.Tensor:
        scales = torch.exp2(torch.rand(shape, generator=self.numbers, device="cuda") * 16 - 8)
        if self.along_k or self.random.random() < 0.5:
            return self._laid(scales.transpose(-1, -2), 4).transpose(-1, -2)
        return self._laid(scales, 1)

    def _make(self):
        self.with_nan = self.random.random() < 0.1
        blocks, n_blocks = -(-self.K // 128), -(-self.N // 128)
        groups, self.scale_rows = self.groups, 128
        if self.along_k:
            blocks, n_blocks, groups, self.scale_rows = blocks + self.groups, self.N, 1, 1
        a, b = self._laid(self._codes(self.tokens, self.K), 16), self._laid(self._codes(groups, self.N, self.K), 16)
        self.a, self.a_scale, self.b, self.b_scale = a, self._scales(self.tokens, blocks), b, self._scales(groups, n_blocks, blocks)
        if self.tokens == 1 and not self.along_k:  # a row alone may have any stride
            self.a_scale = self.a_scale.contiguous()
        torch_dtype, bits, _ = DTYPES[self.dtype]
        unit = 16 // torch_dtype.itemsize
        self.stride = -(-self.N // unit) * unit + unit * self.random.choice((0, 0, 1, 5))
        self.buffer = torch.full((64 + self.M * self.stride + 64,), POISON * (0x0101 if bits == torch.int16 else 0x01010101), dtype=bits, device="cuda")
        if self.accumulated:
            before = torch.randn((self.M, self.N), generator=self.numbers, device="cuda") * 2.0 ** self.random.randint(-4, 12)
            self.rows_of_d(self.buffer).copy_(before.to(torch_dtype).view(bits))
        self.before = self.buffer.clone()
        self.c = None
        if self.c_dtype:
            c = torch.randn((self.M, self.N + 8 * self.random.choice((0, 0, 1))), generator=self.numbers, device="cuda") * 100
            self.c = c.to(DTYPES[self.c_dtype][0])[:, : self.N]

    def rows_of_d(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer[64:-64].view(self.M, self.stride)[:, : self.N]

    def arguments(self) -> dict:
        d = self.rows_of_d(self.buffer).view(DTYPES[self.dtype][0])
        given = {"a": self.a, "a_scale": self.a_scale, "b": self.b, "b_scale": self.b_scale, "d": d}
        if self.grouping in ("dense", "k_grouped"):
            given |= {"b": self.b[0], "b_scale": self.b_scale[0]}
        if self.c is not None:
            given["c"] = self.c
        if self.along_k:
            given |= {"a_scale": self.a_scale.t(), "b_scale": self.b_scale[0].t(), "d": d.unflatten(0, (self.groups, -1))}
            given["accumulate"] = "yes" if self.accumulated else "no"
        if self.grouping == "m_grouped_masked":
            given |= {name: given[name].unflatten(0, (self.groups, -1)) for name in ("a", "a_scale", "d")}
            if self.random.random() < 0.5:
                given["expected_rows"] = self.random.randint(1, 200)
        return given | {name: torch.tensor(values, dtype=torch.int32, device="cuda") for name, values in self.own.items()}

    def expected(self, sums_of, splits: int) -> torch.Tensor:
        sums = torch.zeros((self.M, self.N), device="cuda")
        count = self.M * self.N
        arrays = (self.a, self.a_scale, self.b, self.b_scale, self.source, self.group, self.begin, self.length, self.first_block, sums)
        numbers = (self.M, self.N, self.tokens, self.scale_rows, splits)
        strides = (self.a.stride(0), *self.a_scale.stride(), *self.b.stride()[:2], *self.b_scale.stride())
        sums_of((-(-count // 128),), (128,), (*(x.data_ptr() for x in arrays), *map(numpy.int32, numbers), *map(numpy.int64, strides)))
        torch_dtype, bits, nan = DTYPES[self.dtype]
        result = self.before.clone()
        rows = self.rows_of_d(result)
        added = sums if self.c is None else self.c.float() + sums
        if self.accumulated:
            before, flushed = rows.view(torch_dtype).float(), _flushed if self.dtype == "f32" else torch.clone
            added = flushed(flushed(before) + flushed(sums))
        rounded = torch.where(added.isnan(), nan, added.to(torch_dtype).view(bits))
        rows.copy_(torch.where((self.group >= 0)[:, None], rounded, rows))
        self.sums = sums
        return result

    def by_reference(self, splits: int) -> numpy.ndarray:
        """The sums, by zoo.reference."""
        def host(array: torch.Tensor) -> numpy.ndarray:
            array = array.cpu().contiguous().numpy()
            return array.view(ml_dtypes.float8_e4m3fn) if array.dtype == numpy.uint8 else array

        a, a_scale, b, b_scale, source, group = map(host, (self.a, self.a_scale, self.b, self.b_scale, self.source, self.group))
        if self.along_k:
            sums = gemm_fp8b128_k_grouped(a, a_scale.T, b[0], b_scale[0].T, self.own["offsets"]).reshape(self.M, self.N)
            return numpy.where((group >= 0)[:, None], sums, numpy.float32(0))
        sums = numpy.zeros((self.M, self.N), numpy.float32)
        for g in range(self.groups):
            rows = group == g
            if rows.any():
                there = (source[rows] >= 0)[:, None]
                own = numpy.where(there, a[source[rows]].view(numpy.uint8), numpy.uint8(0)).view(a.dtype)
                sums[rows] = gemm_fp8b128(own, numpy.where(there, a_scale[source[rows]], numpy.float32(0)), b[g], b_scale[g], splits)
        return sums

    def words(self) -> str:
        return f"{self.name} M {self.M} N {self.N} K {self.K} G {self.groups} d {self.dtype} {' '.join(self.own)}" + (
            f" c {self.c_dtype}" if self.c_dtype else " accumulated" if self.accumulated else ""
        )


def _flushed(values: torch.Tensor) -> torch.Tensor:
    """What the L2 cache adds: subnormal numbers are zeros."""
    return torch.where(values.abs() < 2.0**-126, torch.copysign(torch.zeros_like(values), values), values)


def run(collection: zoo.Zoo, problem: Problem) -> tuple[str, int]:
    """(variant, its splits); D is in the problem's buffer then."""
    arguments = problem.arguments()
    kernel = collection.kernel(problem.name)
    names = [v.name for v in kernel.variants if v.arch == "sm_90a" and v.dtypes["d"] == problem.dtype]
    wanted = problem.random.choice((None, problem.random.choice(names)))
    try:
        plan = collection.prepare(problem.name, variant=wanted, **arguments)
    except VariantError:
        plan = collection.prepare(problem.name, **arguments)
    plan(torch.cuda.current_stream().cuda_stream)
    variant = plan.launch.variant
    return variant.name, variant.constants.get("SPLITS", 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cubins")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="gemm.fp8b128.*")
    parser.add_argument("--small", action="store_true", help="for compute-sanitizer")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then, and say how many ran")
    arguments = parser.parse_args()
    collection = zoo.Zoo(arguments.cubins) if arguments.cubins else packaged
    known = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather", "k_grouped")
    names = [name for name in collection.manifest.names if fnmatch.fnmatch(name, arguments.only) and name.startswith("gemm.fp8b128.")]
    names = [name for name in names if name.split(".")[2] in known and name.count(".") == 2]
    sums_of = cupy.RawKernel(SOURCE, "sums_of")
    with torch.cuda.stream(torch.cuda.Stream()), cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        return soak(collection, names, sums_of, arguments)


def soak(collection: zoo.Zoo, names: list[str], sums_of, arguments) -> int:
    started, wrong, ran = time.monotonic(), 0, collections.Counter()
    for number in range(arguments.count):
        if time.monotonic() - started > arguments.seconds:
            break
        seed = arguments.seed * 1_000_000 + number
        problem = Problem(collection.kernel(names[number % len(names)]), seed, arguments.small)
        variant, splits = run(collection, problem)
        expected = problem.expected(sums_of, splits)
        if number < 6 * len(names) and problem.M * problem.N * problem.K < 4e6:  # is the answer right?
            sums = problem.by_reference(splits)
            if not numpy.array_equal(problem.sums.cpu().numpy(), sums, equal_nan=True):
                print(f"seed {seed}: {problem.words()}: this file's kernel differs from zoo.reference", flush=True)
                wrong += 1
            broken = expected.clone()
            broken[len(broken) // 2] ^= 1
            if torch.equal(broken, problem.buffer):
                raise AssertionError("a turned bit was not seen")
        if not torch.equal(expected, problem.buffer):
            places = (expected != problem.buffer).nonzero().flatten()
            print(f"seed {seed}: {problem.words()} {variant}: {len(places)} elements of the buffer differ, first {places[0].item() - 64}", flush=True)
            wrong += 1
        ran[(problem.name, variant)] += 1
    total = sum(ran.values())
    print(f"{total} problems on {len(ran)} variants of {len(names)} kernels, {wrong} wrong, {time.monotonic() - started:.1f} s")
    available = {(n, v.name) for n in names for v in collection.kernel(n).variants if v.arch == "sm_90a"}
    missed = sorted(available - set(ran))
    print(f"variants that no problem took: {len(missed)}" + "".join(f"\n    {name} {variant}" for name, variant in missed[:10]))
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(main())
