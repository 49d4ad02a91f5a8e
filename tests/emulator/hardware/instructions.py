"""The raw instructions that are put to a real GPU, and the CUDA source that executes them.

Two tables (`MATRIX`, `ELEMENTWISE`) name every instruction once; `cuda_source()` turns them into one file of tiny kernels,
`cases.py` makes their inputs, `run_on_gpu.py` executes them and writes vectors, `test_matrix_hardware.py` replays the vectors
through the emulator's arithmetic.

Matrices are row-major with K contiguous: A (M, K), B (N, K), C and D (M, N) with one 32-bit word per element (f16 results in
the low half).  wgmma is used with N = 8: the value rule does not depend on N.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = 8  # N of every matrix instruction here


@dataclass(frozen=True)
class Matrix:
    """One matrix instruction: element types by PTX name; depth is K."""

    family: str  # "wgmma", "wgmma_registers" (A from registers) or "mma"
    a: str
    b: str
    result: str  # f32, f16 or s32
    depth: int

    @property
    def name(self) -> str:
        return f"{self.family}_k{self.depth}_{self.result}_{self.a}_{self.b}"

    @property
    def rows(self) -> int:
        return 16 if self.family == "mma" else 64

    @property
    def row_bytes(self) -> int:
        return self.depth * ELEMENT_BYTES[self.a]


ELEMENT_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}

_FP8 = [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
MATRIX = (
    [Matrix("wgmma", a, b, result, 32) for a, b in _FP8 for result in ("f32", "f16")]
    + [
        Matrix("wgmma", "bf16", "bf16", "f32", 16),
        Matrix("wgmma", "f16", "f16", "f32", 16),
        Matrix("wgmma", "f16", "f16", "f16", 16),
        Matrix("wgmma", "tf32", "tf32", "f32", 8),
        Matrix("wgmma_registers", "e4m3", "e4m3", "f32", 32),
        Matrix("wgmma_registers", "bf16", "bf16", "f32", 16),
        Matrix("wgmma_registers", "tf32", "tf32", "f32", 8),
        Matrix("wgmma", "s8", "s8", "s32", 32),
        Matrix("wgmma", "u8", "s8", "s32", 32),
    ]
    + [Matrix("mma", a, b, result, 32) for a, b in _FP8 for result in ("f32", "f16")]
    + [
        Matrix("mma", "e4m3", "e4m3", "f32", 16),
        Matrix("mma", "e5m2", "e4m3", "f16", 16),
        Matrix("mma", "bf16", "bf16", "f32", 16),
        Matrix("mma", "bf16", "bf16", "f32", 8),
        Matrix("mma", "f16", "f16", "f32", 16),
        Matrix("mma", "f16", "f16", "f16", 16),
        Matrix("mma", "f16", "f16", "f32", 8),
        Matrix("mma", "f16", "f16", "f16", 8),
        Matrix("mma", "tf32", "tf32", "f32", 8),
        Matrix("mma", "tf32", "tf32", "f32", 4),
        Matrix("mma", "s8", "s8", "s32", 32),
        Matrix("mma", "u8", "s8", "s32", 32),
    ]
)


@dataclass(frozen=True)
class Elementwise:
    """One instruction on separate values; `inputs` names the input set of cases.py, one letter per register kind."""

    mnemonic: str
    inputs: tuple[str, ...]  # register kinds of the sources: h (16 bit), r (32), l (64)
    output: str
    domain: str

    @property
    def name(self) -> str:
        return self.mnemonic.replace(".", "_")


_INTEGERS = (("s8", "r"), ("u8", "r"), ("s16", "h"), ("u16", "h"), ("s32", "r"), ("u32", "r"), ("s64", "l"), ("u64", "l"))


def _elementwise() -> list[Elementwise]:
    table = []

    def add(mnemonic, inputs, output, domain):
        table.append(Elementwise(mnemonic, tuple(inputs), output, domain))

    for short in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            add(f"cvt.rn.satfinite{relu}.{short}.f32", "rr", "h", "f32")
            add(f"cvt.rn.satfinite{relu}.{short}.f16x2", "r", "h", "pairs16")
            add(f"cvt.rn{relu}.f16x2.{short}", "h", "r", "all16")
    for half in ("f16", "bf16"):
        for rounding in ("rn", "rz"):
            for relu in ("", ".relu"):
                add(f"cvt.{rounding}{relu}.{half}.f32", "r", "h", "f32")
                add(f"cvt.{rounding}{relu}.{half}x2.f32", "rr", "r", "f32")
            add(f"cvt.{rounding}.satfinite.{half}.f32", "r", "h", "f32")
            add(f"cvt.{rounding}.satfinite.{half}x2.f32", "rr", "r", "f32")
        add(f"cvt.f32.{half}", "h", "r", "all16")
        add(f"cvt.f64.{half}", "h", "l", "all16")
        for rounding in ("rni", "rzi", "rmi", "rpi"):
            add(f"cvt.{rounding}.{half}.{half}", "h", "h", "all16")
            for integer, register in _INTEGERS:
                if integer not in ("s8", "u8") or half == "f16":  # ptxas refuses bf16 <-> 8-bit integers
                    add(f"cvt.{rounding}.{integer}.{half}", "h", register, "all16")
        for rounding in ("rn", "rz", "rm", "rp"):
            for integer in ("s8", "u8", "s16", "u16") if half == "f16" else ("s16", "u16"):
                add(f"cvt.{rounding}.{half}.{integer}", "h", "h", "all16")
            for integer in ("s32", "u32"):
                add(f"cvt.{rounding}.{half}.{integer}", "r", "h", "b32")
    add("cvt.rm.f16.f32", "r", "h", "f32")
    add("cvt.rp.f16.f32", "r", "h", "f32")
    add("cvt.rn.bf16.f16", "h", "h", "all16")
    add("cvt.rz.bf16.f16", "h", "h", "all16")
    add("cvt.rn.f16.bf16", "h", "h", "all16")
    add("cvt.rz.f16.bf16", "h", "h", "all16")
    add("cvt.sat.f32.f16", "h", "r", "all16")
    for form in ("rna", "rn", "rz", "rn.relu", "rna.satfinite"):
        add(f"cvt.{form}.tf32.f32", "r", "r", "f32")
    for integer in ("s16", "u16"):
        add(f"cvt.rn.f32.{integer}", "h", "r", "all16")
    for rounding in ("rn", "rz", "rm", "rp"):
        for integer, register in (("s32", "r"), ("u32", "r"), ("s64", "l"), ("u64", "l")):
            add(f"cvt.{rounding}.f32.{integer}", register, "r", "b32" if register == "r" else "b64")
        add(f"cvt.{rounding}.f32.f64", "l", "r", "f64")
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        add(f"cvt.{rounding}.f32.f32", "r", "r", "f32")
        for integer, register in (("s32", "r"), ("u32", "r"), ("s64", "l"), ("u64", "l")):
            add(f"cvt.{rounding}.{integer}.f32", "r", register, "f32")
    add("cvt.rni.ftz.s32.f32", "r", "r", "f32")
    for rounding in ("rn", "rz", "rm", "rp"):
        for ftz in ("", ".ftz"):
            add(f"fma.{rounding}{ftz}.f32", "rrr", "r", "f32x3")
            add(f"add.{rounding}{ftz}.f32", "rr", "r", "f32x2")
            add(f"mul.{rounding}{ftz}.f32", "rr", "r", "f32x2")
    for half in ("f16", "bf16"):
        add(f"fma.rn.{half}", "hhh", "h", "half3")
        add(f"fma.rn.relu.{half}", "hhh", "h", "half3")
        add(f"add.rn.{half}", "hh", "h", "half2")
        add(f"mul.rn.{half}", "hh", "h", "half2")
    return table


ELEMENTWISE = _elementwise()

# Not bit-specified; recorded to know how far the emulator's correctly rounded values may be.
APPROXIMATE = [
    Elementwise(f"{operation}.approx{ftz}.f32", ("r",), "r", "f32")
    for operation in ("ex2", "lg2", "rcp", "rsqrt", "sqrt")
    for ftz in ("", ".ftz")
] + [Elementwise("tanh.approx.f32", ("r",), "r", "f32")]

_CTYPE = {"h": "uint16_t", "r": "uint32_t", "l": "uint64_t"}

_HEADER = """\
// Raw instructions, one kernel each. Generated by tests/emulator/hardware/instructions.py.
#include <cstdint>

// 4 x 4-byte words of A per lane: register i holds row lane/4 + 8*(i%2), bytes 4*(lane%4) + 16*(i/2); the same bytes for every element type.
template <int ROW_BYTES> __device__ void load_a(const uint8_t* a, uint32_t (&r)[4], int lane) {
  for (int i = 0; i < ROW_BYTES / 8; ++i)
    r[i] = *reinterpret_cast<const uint32_t*>(a + (lane / 4 + 8 * (i % 2)) * ROW_BYTES + 4 * (lane % 4) + 16 * (i / 2));
}

// D register j of lane l: row l/4 + 8*(j/2), column 2*(l%4) + j%2.
__device__ int element(int lane, int j) { return (lane / 4 + 8 * (j / 2)) * 8 + 2 * (lane % 4) + j % 2; }

template <bool HALF> __device__ void load_c(const uint32_t* c, uint32_t (&r)[4], int lane) {
  for (int j = 0; j < 4; ++j) {
    if (!HALF) r[j] = c[element(lane, j)];
    else if (j % 2 == 0) r[j / 2] = (c[element(lane, j)] & 0xFFFF) | (c[element(lane, j + 1)] << 16);
  }
}
template <bool HALF> __device__ void store_d(uint32_t* d, const uint32_t (&r)[4], int lane) {
  for (int j = 0; j < 4; ++j) d[element(lane, j)] = HALF ? (r[j / 2] >> (16 * (j % 2))) & 0xFFFF : r[j];
}

// No swizzle, K-major: 8 x 16-byte core matrices; the two 16-byte halves of a row 128 bytes apart (LBO), 8 rows every 256 bytes (SBO).
__device__ uint64_t descriptor(const void* shared) {
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | (static_cast<uint64_t>(128 >> 4) << 16) | (static_cast<uint64_t>(256 >> 4) << 32);
}
__device__ void to_core_matrices(uint8_t* shared, const uint8_t* rows, int count, int thread) {
  for (int i = thread; i < count * 2; i += 128) {
    int row = i / 2, half = i % 2;
    *reinterpret_cast<uint4*>(shared + row / 8 * 256 + half * 128 + row % 8 * 16) = *reinterpret_cast<const uint4*>(rows + row * 32 + half * 16);
  }
}
"""


def _registers(result: str, first: int = 0) -> tuple[str, int]:
    count = 2 if result == "f16" else 4
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}", count


def _wgmma(m: Matrix) -> str:
    _d, count = _registers(m.result)
    from_registers = m.family == "wgmma_registers"
    if from_registers:
        a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        a_inputs, used = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])', count + 4
    else:
        a, a_inputs, used = f"%{count}", '"l"(descriptor(shared_a))', count + 1
    if m.result == "s32":
        immediates = ""
    elif ELEMENT_BYTES[m.a] == 2:
        immediates = ", 1, 1, 0" if from_registers else ", 1, 1, 0, 0"
    else:
        immediates = ", 1, 1"
    outputs = ", ".join(f'"+r"(d[{i}])' for i in range(count))
    half = "true" if m.result == "f16" else "false"
    shared_a = "" if from_registers else "__shared__ alignas(1024) uint8_t shared_a[2048]; "
    load = (
        "uint32_t a[4]; load_a<32>(a_tiles + blockIdx.x * 2048 + warp * 512, a, lane);"
        if from_registers
        else "to_core_matrices(shared_a, a_tiles + blockIdx.x * 2048, 64, threadIdx.x);"
    )
    # The f32 result is passed as raw bits: the asm copies them to .f32 registers.
    kind = "f32" if m.result == "f32" else "b32"
    names = [f"x{i}" for i in range(count)]
    declare = f".reg .{kind} " + ", ".join(names) + "; " + " ".join(f"mov.b32 {n}, %{i};" for i, n in enumerate(names))
    back = " ".join(f"mov.b32 %{i}, {n};" for i, n in enumerate(names))
    text = (
        f"{{ .reg .pred p; setp.ne.b32 p, 1, 0; {declare} "
        f"wgmma.fence.sync.aligned; "
        f"wgmma.mma_async.sync.aligned.m64n8k{m.depth}.{m.result}.{m.a}.{m.b} {{{', '.join(names)}}}, {a}, %{used}, p{immediates}; "
        f"wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {back} }}"
    )
    return f"""
extern "C" __global__ void {m.name}(const uint8_t* a_tiles, const uint8_t* b_tiles, const uint32_t* c_tiles, uint32_t* d_tiles) {{
  {shared_a}__shared__ alignas(1024) uint8_t shared_b[256];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  {load}
  to_core_matrices(shared_b, b_tiles + blockIdx.x * 256, 8, threadIdx.x);
  uint32_t d[4];
  load_c<{half}>(c_tiles + blockIdx.x * 512 + warp * 128, d, lane);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  asm volatile("{text}"
               : {outputs} : {a_inputs}, "l"(descriptor(shared_b)) : "memory");
  store_d<{half}>(d_tiles + blockIdx.x * 512 + warp * 128, d, lane);
}}
"""


def _mma(m: Matrix) -> str:
    d, count = _registers(m.result)
    words = m.row_bytes // 8  # A registers
    b_words = words // 2
    a = "{" + ", ".join(f"%{count + i}" for i in range(words)) + "}"
    b = "{" + ", ".join(f"%{count + words + i}" for i in range(b_words)) + "}"
    outputs = ", ".join(f'"+{"f" if m.result == "f32" else "r"}"({"f" if m.result == "f32" else "d"}[{i}])' for i in range(count))
    inputs = ", ".join([f'"r"(a[{i}])' for i in range(words)] + [f'"r"(b[{i}])' for i in range(b_words)])
    half = "true" if m.result == "f16" else "false"
    satfinite = ".satfinite" if m.result == "s32" else ""
    text = f"mma.sync.aligned.m16n8k{m.depth}.row.col{satfinite}.{m.result}.{m.a}.{m.b}.{m.result} {d}, {a}, {b}, {d};"
    to_float = "float f[4]; for (int i = 0; i < 4; ++i) f[i] = __uint_as_float(d[i]);" if m.result == "f32" else ""
    from_float = "for (int i = 0; i < 4; ++i) d[i] = __float_as_uint(f[i]);" if m.result == "f32" else ""
    return f"""
extern "C" __global__ void {m.name}(const uint8_t* a_tiles, const uint8_t* b_tiles, const uint32_t* c_tiles, uint32_t* d_tiles) {{
  int lane = threadIdx.x;
  uint32_t a[4], b[2], d[4];
  load_a<{m.row_bytes}>(a_tiles + blockIdx.x * {16 * m.row_bytes}, a, lane);
  for (int i = 0; i < {b_words}; ++i)
    b[i] = *reinterpret_cast<const uint32_t*>(b_tiles + blockIdx.x * {8 * m.row_bytes} + lane / 4 * {m.row_bytes} + 4 * (lane % 4) + 16 * i);
  load_c<{half}>(c_tiles + blockIdx.x * 128, d, lane);
  {to_float}
  asm volatile("{text}" : {outputs} : {inputs});
  {from_float}
  store_d<{half}>(d_tiles + blockIdx.x * 128, d, lane);
}}
"""


# PTX wants 8-bit operands in .b16/.b32 registers and float operands in typed or untyped registers of their width; inline asm passes raw bits.
def _elementwise_kernel(e: Elementwise) -> str:
    pointers = ", ".join(f"const {_CTYPE[kind]}* in{i}" for i, kind in enumerate(e.inputs))
    operands = ", ".join(["%0"] + [f"%{i + 1}" for i in range(len(e.inputs))])
    sources = ", ".join(f'"{kind}"(in{i}[at])' for i, kind in enumerate(e.inputs))
    return f"""
extern "C" __global__ void {e.name}({pointers}, {_CTYPE[e.output]}* out, uint32_t count) {{
  for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {{
    {_CTYPE[e.output]} result;
    asm volatile("{_with_typed_registers(e, operands)}" : "={e.output}"(result) : {sources});
    out[at] = result;
  }}
}}
"""


def _with_typed_registers(e: Elementwise, operands: str) -> str:
    """f32 and f64 operands must sit in float registers, so move the raw bits through one."""
    parts = e.mnemonic.split(".")
    if parts[0] == "cvt":
        target, source = parts[-2], parts[-1]
    else:
        target = source = parts[-1]
    typed = {"f32": "f32", "f64": "f64"}
    before, after, names = [], [], []
    kind = typed.get(target)
    if kind:
        before.append(f".reg .{kind} y;")
        after.append(f"mov.b{kind[1:]} %0, y;")
        names.append("y")
    else:
        names.append("%0")
    for i in range(len(e.inputs)):
        kind = typed.get(source)
        if kind:
            before.append(f".reg .{kind} x{i}; mov.b{kind[1:]} x{i}, %{i + 1};")
            names.append(f"x{i}")
        else:
            names.append(f"%{i + 1}")
    return f"{{ {' '.join(before)} {e.mnemonic} {', '.join(names)}; {' '.join(after)} }}"


def cuda_source() -> str:
    text = [_HEADER]
    text += [_mma(m) if m.family == "mma" else _wgmma(m) for m in MATRIX]
    text += [_elementwise_kernel(e) for e in ELEMENTWISE + APPROXIMATE]
    return "".join(text)


if __name__ == "__main__":
    print(cuda_source())
