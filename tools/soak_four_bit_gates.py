"""Random problems for products of 4-bit gates and ups that end in their activation, every byte of what is written and of what lies around it compared.

    python tools/soak_four_bit_gates.py [--cubins DIR] [--count 10000] [--seed 0] [--only 'gemm.fp8_nvfp4.*'] [--small] [--seconds 100]

As tools/soak_four_bit.py, from which operands and sums come: FP8 and bf16 tokens, weights packed or as they are stored, gates and ups in either
order, three activations, one alpha or two, results of 16 bits or e4m3 under scales that are found or known, in either order of columns.
What becomes of the sums is a scalar CUDA kernel's answer, in divisions, which shares no code with the products.
Ends with 1 where anything differs; every difference is printed with the seed of its problem.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cupy
import numpy
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.soak_four_bit import DENSE_AND_GROUPS, FourBitProblem
from tools.soak_four_bit import SOURCE as SUMS
from tools.soak_gemm import Output, quantised, soak_from_the_command_line
from zoo.reference.block_scaled_epilogues import Gates
from zoo.reference.four_bit_gated import Steps, h_of_sums, quantised_by, quantised_in_blocks
from zoo.reference.fragments import column_order
from zoo.reference.swiglu import ACTIVATIONS

SOURCE = (
    SUMS
    + r"""
__device__ float product(float a, float b) { float d; asm("mul.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float quotient(float a, float b) { float d; asm("div.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float larger_number(float a, float b) { float d; asm("max.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float larger(float a, float b) { float d; asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
__device__ float smaller(float a, float b) { float d; asm("min.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }

// h as zoo/reference/swiglu.py has it of gates and ups (M, 2 * columns): those of column n lie at n * step and to_up further.
extern "C" __global__ void activated(const float* both, float* h, int M, int columns, int step, int to_up, float slope, float added,
                                     float limit, int limited) {
    const long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at >= (long long)M * columns) return;
    const float* place = both + at / columns * 2 * columns + at % columns * step;
    float gate = place[0], up = place[to_up];
    if (limited) gate = smaller(gate, limit), up = larger(smaller(up, limit), -limit);
    const float t = larger_number(product(fabsf(product(slope, gate)), -0x1.715476p+0f), -127.0f), n = rintf(t), f = sum_of(t, -n);
    const float coefficients[] = {0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1.0f};
    float p = 0;
    for (int i = 0; i < 6; i++) p = fused(p, f, coefficients[i]);
    const float e = __int_as_float(__float_as_int(p) + (int)n * (1 << 23));
    const float silu = product(larger(gate, product(gate, e)), quotient(1.0f, sum_of(1.0f, e)));
    h[at] = product(silu, added != 0 ? sum_of(up, added) : up);
}
"""
)
GROUPINGS = tuple(
    f"{grouping}.{result}{lying}" for grouping in DENSE_AND_GROUPS for result in ("swiglu", "swiglu_fp8b128") for lying in ("", "_stored")
)


class GatesProblem(FourBitProblem):
    """A random problem of gemm.{fp8,bf16}_{nvfp4,mxfp4}.*.swiglu*."""

    known: torch.Tensor | None  # scales of the result

    def _columns(self, small: bool) -> int:
        """N: as many gates as ups, mostly no whole tiles of either."""
        self.settings["gates"] = self.random.choice(("halves", "interleaved"))
        self.quantised = "fp8b128" in (self.epilogue or "")
        unit = 16 if self.quantised else 8
        return 2 * unit * self._log(1, max(2, (80 if small else 420) // unit))

    def _outputs(self, places: int, gap: int) -> list[Output]:
        self.settings["activation"] = self.random.choice(tuple(ACTIVATIONS))
        self.limit = self.random.choice((0.5, 7.0, 3.0e38))
        rows, columns, self.known = self.M // places, self.N // 2, None
        if not self.quantised:
            return [Output("d", self.dtype, places, rows, columns, gap)]
        self.settings |= {"scaling": self.random.choice(("exact", "pow2")), "order": self.random.choice(("plain", "fragments"))}
        laid = columns if self.settings["order"] == "plain" else -(-columns // 64) * 64
        if self.random.random() < 0.4:
            count = self.random.choice((1, self.groups))
            self.known = torch.exp2(torch.rand(count, generator=self.numbers, device="cuda") * 12 - 10)
        scales = Output("scales", "f32", places, rows, -(-columns // 128), gap, transposed=self.random.random() < 0.5)
        return [Output("q", "e4m3", places, rows, laid, gap), scales]

    def _factors(self) -> dict[str, torch.Tensor]:
        found = super()._factors()
        found.pop("alpha", None)
        if self.random.random() < 0.85:
            smaller = 2.0 ** -self.random.randint(0, 16)  # activations bend around 1
            shape = (self.groups, self.random.choice((1, 2)))
            found["alpha"] = torch.randn(shape, generator=self.numbers, device="cuda") * smaller
        if self.with_nan and "bias" in found:
            odd = self.random.choice((float("nan"), float("inf"), -float("inf"), -0.0))
            found["bias"][self.random.randrange(self.groups), self.random.randrange(self.N)] = odd
        return found

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if self.grouping == "dense" and "alpha" in given:
            given["alpha"] = given["alpha"][0]
        if self.quantised:
            given |= {} if self.stored else {"columns": self.N // 2}
            given |= {"q_scale": self.known} if self.known is not None else {}
        return given | {"limit": self.limit}

    def alphas(self) -> torch.Tensor:
        """The last one is of ups."""
        row = torch.arange(self.N, device="cuda")
        are_ups = row >= self.N // 2 if self.settings["gates"] == "halves" else row % 2 == 1
        alphas = self.factors["alpha"]
        return torch.where(are_ups, alphas[:, -1:], alphas[:, :1])

    def made(self, found: torch.Tensor, kernels: cupy.RawModule) -> torch.Tensor:
        columns = self.N // 2
        step, to_up = (1, columns) if self.settings["gates"] == "halves" else (2, 1)
        slope, added, limited = ACTIVATIONS[self.settings["activation"]]
        both, h = found.contiguous(), torch.zeros((self.M, columns), device="cuda")
        sizes = map(numpy.int32, (self.M, columns, step, to_up))
        numbers = (numpy.float32(slope), numpy.float32(added), numpy.float32(self.limit), numpy.int32(limited))
        values = (both.data_ptr(), h.data_ptr(), *sizes, *numbers)
        kernels.get_function("activated")((-(-self.M * columns // 128),), (128,), values)
        return super().made(h, kernels)

    def expected(self, kernels: cupy.RawModule, splits: int, where: numpy.ndarray | None) -> list[torch.Tensor]:
        h, owned = self.finished(kernels, splits), self.group >= 0
        self.answers = self.quantisations(h) if self.quantised else [h]
        return [output.expected(answer, owned) for output, answer in zip(self.outputs, self.answers, strict=True)]

    def quantisations(self, h: torch.Tensor) -> list[torch.Tensor]:
        """Before it is rounded to e4m3, and the scales."""
        if self.known is None:
            values, scales = quantised(h, self.settings["scaling"] == "pow2")
        else:
            known = self.known[self.group.clamp(min=0).long() % len(self.known)]
            values = (h * (1 / known.double()).float()[:, None]).clamp(-448, 448)
            scales = known[:, None].expand(-1, -(-h.shape[1] // 128))
        if self.settings["order"] == "fragments":
            order = torch.from_numpy(column_order(h.shape[1])).cuda()
            values = torch.nn.functional.pad(values, (0, len(order) - h.shape[1]))[:, order]
        return [values, scales]

    def differs_from_reference(self, splits: int, where: numpy.ndarray | None) -> bool:
        """Of the sums, and of what this file makes of them."""
        gates = Gates(self.settings["gates"], self.settings["activation"], numpy.float32(self.limit))
        host = {name: array.float().cpu().numpy() for name, array in self.factors.items()}
        sums, differ = self.by_reference(splits), super().differs_from_reference(splits, where)
        group, source = self.group.cpu().numpy(), self.source.cpu().numpy()
        exists = (source >= 0) & (source < self.tokens)
        for g in range(self.groups):
            own = numpy.flatnonzero(group == g)
            if not len(own):
                continue
            of_rows = None
            if "a_scale" in host:
                of_rows = numpy.where(exists[own], host["a_scale"][numpy.where(exists[own], source[own], 0)], numpy.float32(0))
            steps = Steps(_of(host.get("alpha"), g), of_rows, _of(host.get("bias"), g), _of(host.get("row_scale"), own))
            h = h_of_sums(sums[own], self.powers[g].cpu().numpy(), gates, steps)
            answers = [answer.cpu().numpy()[own] for answer in self.answers]
            if not self.quantised:
                differ |= not numpy.array_equal(answers[0], h, equal_nan=True)
                continue
            in_fragments = self.settings["order"] == "fragments"
            q = torch.from_numpy(answers[0])
            bits = torch.where(q.isnan(), 0x7F, q.to(torch.float8_e4m3fn).view(torch.uint8)).numpy()
            if self.known is None:
                right = quantised_in_blocks(h, self.settings["scaling"], in_fragments)
                differ |= not numpy.array_equal(answers[1], right.scales, equal_nan=True)
                differ |= not numpy.array_equal(bits, right.q.view(numpy.uint8).reshape(bits.shape))
            else:
                known = numpy.float32(self.known[g % len(self.known)].item())
                differ |= not numpy.array_equal(bits, quantised_by(h, known, in_fragments).view(numpy.uint8).reshape(bits.shape))
        return differ

    def words(self) -> str:
        known = [f"{len(self.known)} known scales"] if self.known is not None else []
        alphas = [f"{self.factors['alpha'].shape[1]} alphas"] if "alpha" in self.factors else []
        return " ".join([super().words(), f"limit {self.limit:g}", *alphas, *known])


def _of(array: numpy.ndarray | None, place: int | numpy.ndarray) -> numpy.ndarray | None:
    return None if array is None else array[place]


if __name__ == "__main__":
    patterns = tuple(f"gemm.{tokens}_*4.{grouping}" for tokens in ("fp8", "bf16") for grouping in GROUPINGS)
    sys.exit(soak_from_the_command_line(__doc__, patterns, SOURCE, GatesProblem))
