"""What nvcc makes of function pointers, virtual functions, recursion, structs and variadic functions, for GPUs of each generation."""

import math

import numpy as np
import pytest

from zoo import emulator

THREADS = 64
THREAD = np.arange(THREADS)
SOURCE = r"""
#include <alloca.h>
#include <cstdarg>
#include <cstdio>
#include <new>
#define CALLED __device__ __noinline__

typedef int (*Operation)(int, int);
CALLED int add(int a, int b) { return a + b; }
CALLED int subtract(int a, int b) { return a - b; }
CALLED int multiply(int a, int b) { return a * b; }
__device__ Operation table[3] = {add, subtract, multiply};
__constant__ Operation fixed_table[3] = {multiply, add, subtract};
extern "C" __global__ void pointers(int* out, int n) {
    int i = threadIdx.x;
    Operation f = table[i % 3], g = fixed_table[i / 3 % 3], h = n > i ? add : multiply;
    out[i] = f(i, 3) + 1000 * g(i, 5) + h(i, 7);
}
__device__ Operation sparse[4] = {add, nullptr, subtract, multiply};
extern "C" __global__ void absent(int* out) { out[threadIdx.x] = sparse[threadIdx.x % 4](threadIdx.x, 3); }

// The destructors make functions of the table that call free.
struct Shape {
    int k;
    __device__ Shape(int k) : k(k) {}
    __device__ virtual int area(int x) const = 0;
    __device__ virtual void grow() { ++k; }
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    __device__ Square(int k) : Shape(k) {}
    __device__ int area(int x) const override { return k * k + x; }
};
struct Wide : Shape {
    int width;
    __device__ Wide(int k, int width) : Shape(k), width(width) {}
    __device__ int area(int x) const override { return k * width - x; }
    __device__ void grow() override { width += k; }
};
CALLED int through(Shape* shape, int x) { shape->grow(); return shape->area(x); }
__device__ void make(char* room, int i) {
    if (i % 2) new (room) Square(i); else new (room) Wide(i, 3);
}
extern "C" __global__ void make_objects(char* room) { make(room + 32 * threadIdx.x, threadIdx.x); }
extern "C" __global__ void use_objects(char* room, int* out) {
    out[threadIdx.x] = through(reinterpret_cast<Shape*>(room + 32 * threadIdx.x), threadIdx.x);
}
extern "C" __global__ void local_objects(int* out) {
    int i = threadIdx.x;
    Square square(i);
    Wide wide(i, 3);
    out[i] = through(i % 2 ? static_cast<Shape*>(&square) : &wide, i);
}
extern "C" __global__ void shared_objects(int* out) {
    __shared__ alignas(8) char room[32 * 64];
    int i = threadIdx.x;
    make(room + 32 * i, i);
    __syncthreads();
    out[63 - i] = through(reinterpret_cast<Shape*>(room + 32 * (63 - i)), 63 - i);
}

CALLED unsigned factorial(unsigned n, unsigned* log) { *log += n; return n < 2 ? 1 : n * factorial(n - 1, log); }
CALLED unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void recursion(unsigned* out) {
    unsigned log = 0, i = threadIdx.x, result = factorial(i % 13, &log) + 7 * fib(i % 10) + log;
    out[i] = result + __shfl_xor_sync(~0u, result, 1);  // all lanes are together again
}
CALLED unsigned odd(unsigned n, unsigned k);
CALLED unsigned even(unsigned n, unsigned k) { return n == 0 ? k : odd(n - 1, k * 3) + n; }
CALLED unsigned odd(unsigned n, unsigned k) { return n == 0 ? k + 1 : even(n - 1, k + 5) - n; }
extern "C" __global__ void mutual(unsigned* out) { out[threadIdx.x] = even(threadIdx.x % 11, threadIdx.x); }
typedef unsigned (*Step)(unsigned, const void*);
CALLED unsigned collatz(unsigned n, const void* self) {
    return n == 1 ? 0 : 1 + (*static_cast<const Step*>(self))(n & 1 ? 3 * n + 1 : n / 2, self);
}
extern "C" __global__ void indirect(unsigned* out) {
    Step self = collatz;
    out[threadIdx.x] = collatz(threadIdx.x + 1, &self);
}
CALLED int find(const int* tree, int node, int key) {
    if (node >= 31) return -1;
    if (tree[node] == key) return node;
    int left = find(tree, 2 * node + 1, key);
    return left >= 0 ? left : find(tree, 2 * node + 2, key);
}
extern "C" __global__ void search(const int* tree, int* out) { out[threadIdx.x] = find(tree, 0, threadIdx.x); }
CALLED void sort(int* a, int count) {
    if (count < 2) return;
    int low[7], high[7], lows = 0, highs = 0, pivot = a[0];
    for (int i = 1; i < count; ++i) (a[i] < pivot ? low[lows++] : high[highs++]) = a[i];
    sort(low, lows);
    sort(high, highs);
    for (int i = 0; i < lows; ++i) a[i] = low[i];
    a[lows] = pivot;
    for (int i = 0; i < highs; ++i) a[lows + 1 + i] = high[i];
}
extern "C" __global__ void quicksort(int* data) {
    int a[8];
    for (int i = 0; i < 8; ++i) a[i] = data[threadIdx.x * 8 + i];
    sort(a, 8);
    for (int i = 0; i < 8; ++i) data[threadIdx.x * 8 + i] = a[i];
}
extern "C" __global__ void too_deep(unsigned* out) { out[threadIdx.x] = even(threadIdx.x * 40, 1); }

struct Record { int a[6]; double d; char c; };
CALLED Record change(Record r, int i) { r.a[i] += 1; r.d *= 2; r.c += i; return r; }
extern "C" __global__ void structs(Record* data, int i) { data[threadIdx.x] = change(data[threadIdx.x], i); }
CALLED double total(int n, ...) {
    va_list list;
    va_start(list, n);
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += va_arg(list, int), sum += va_arg(list, double);
    va_end(list);
    return sum;
}
extern "C" __global__ void variadic(double* out) { int i = threadIdx.x; out[i] = i % 2 ? total(2, i, .5, i * i, 1.5) : total(1, 3 * i, .25); }
CALLED int rooms(int n) {
    int* room = static_cast<int*>(alloca((n + 1) * sizeof(int)));
    for (int i = 0; i <= n; ++i) room[i] = n - i;
    int sum = n ? rooms(n - 1) : 0;
    for (int i = 0; i <= n; ++i) sum += room[i];
    return sum;
}
extern "C" __global__ void allocated(int* out) { out[threadIdx.x] = rooms(threadIdx.x % 8); }
CALLED void tell(int i) { printf("%d of %s\n", i, "two"); if (i) tell(i - 1); }
extern "C" __global__ void printed() { tell(1); }
"""


@pytest.fixture(scope="module", params=["sm_80", "sm_90a", "sm_100a", "sm_120"])
def gpu_and_module(request, compile_ptx, tmp_path_factory):
    source = tmp_path_factory.mktemp("calls") / "calls.cu"
    source.write_text(SOURCE)
    gpu = emulator.Device({"sm_80": "sm_90a", "sm_120": "sm_120a"}.get(request.param, request.param), stack_bytes=2048)
    return gpu, emulator.Module(compile_ptx(source, request.param), whole=False)


@pytest.fixture(params=["issue", "random"])
def results(request, gpu_and_module):
    """results(kernel, parameters, dtype) -> what each thread wrote, in a launch without findings."""
    gpu, module = gpu_and_module
    gpu.scheduling = request.param

    def launched(kernel, *parameters, dtype=np.int32):
        out = gpu.alloc(np.zeros(THREADS, dtype))
        report = gpu.launch(module, kernel, 1, THREADS, params=[*parameters, out][: len(module.functions[kernel].parameters)])
        assert report.ok and not report.findings, report
        return gpu.read(out, THREADS, dtype)

    launched.gpu, launched.module = gpu, module
    return launched


def line_of(text):
    return 1 + next(number for number, line in enumerate(SOURCE.splitlines()) if text in line)


def test_divergent_function_pointers_from_tables_and_choices(results):
    gpu, out = results.gpu, results.gpu.alloc(np.zeros(THREADS, np.int32))
    assert gpu.launch(results.module, "pointers", 1, THREADS, params=[out, 20]).ok
    add, subtract, multiply = (lambda a, b: a + b), (lambda a, b: a - b), (lambda a, b: a * b)
    table, fixed = (add, subtract, multiply), (multiply, add, subtract)
    expected = [table[i % 3](i, 3) + 1000 * fixed[i // 3 % 3](i, 5) + (add if i < 20 else multiply)(i, 7) for i in range(THREADS)]
    np.testing.assert_array_equal(gpu.read(out, THREADS, np.int32), expected)


def test_a_null_function_pointer_is_reported_for_its_lanes_alone(results):
    gpu, out = results.gpu, results.gpu.alloc(np.zeros(THREADS, np.int32))
    report = gpu.launch(results.module, "absent", 1, THREADS, params=[out])
    (found,) = report.findings
    assert (found.kind, found.lanes) == ("invalid-call", 0x22222222) and found.count == 2 and "the address is null" in found.message
    assert found.source.endswith(f"calls.cu:{line_of('void absent')}")
    expected = [(i + 3, 0, i - 3, i * 3)[i % 4] for i in range(THREADS)]
    np.testing.assert_array_equal(gpu.read(out, THREADS, np.int32), expected)


AREAS = np.where(THREAD % 2, (THREAD + 1) ** 2 + THREAD, THREAD * (3 + THREAD) - THREAD)


def test_virtual_functions_of_objects_that_another_kernel_made(results):
    room = results.gpu.alloc(32 * THREADS)
    assert results.gpu.launch(results.module, "make_objects", 1, THREADS, params=[room]).ok
    np.testing.assert_array_equal(results("use_objects", room), AREAS)


@pytest.mark.parametrize("kernel", ["local_objects", "shared_objects"])
def test_virtual_functions_of_objects_in_local_and_shared_memory(results, kernel):
    np.testing.assert_array_equal(results(kernel), AREAS)


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_recursion_of_different_depths_in_the_lanes_of_a_warp(results):
    expected = np.array([math.factorial(i % 13) + 7 * fibonacci(i % 10) + sum(range(i % 13 + 1)) for i in range(THREADS)])
    np.testing.assert_array_equal(results("recursion", dtype=np.uint32), (expected + expected[THREAD ^ 1]).astype(np.uint32))


def test_functions_that_call_each_other(results):
    def even(n, k):
        return k if n == 0 else odd(n - 1, k * 3) + n

    def odd(n, k):
        return k + 1 if n == 0 else even(n - 1, k + 5) - n

    np.testing.assert_array_equal(results("mutual", dtype=np.uint32), [even(i % 11, i) for i in range(THREADS)])


def test_recursion_through_a_pointer(results):
    def steps(n):
        return 0 if n == 1 else 1 + steps(3 * n + 1 if n % 2 else n // 2)

    np.testing.assert_array_equal(results("indirect"), [steps(i + 1) for i in range(THREADS)])


def test_recursion_that_returns_early(results):
    tree = np.random.default_rng(2).permutation(31).astype(np.int32)
    places = {key: place for place, key in enumerate(tree.tolist())}
    np.testing.assert_array_equal(results("search", results.gpu.alloc(tree)), [places.get(i, -1) for i in range(THREADS)])


def test_recursion_that_passes_local_arrays_to_deeper_calls(results):
    data = np.random.default_rng(1).integers(-50, 50, (THREADS, 8)).astype(np.int32)
    place = results.gpu.alloc(data)
    results("quicksort", place)
    np.testing.assert_array_equal(results.gpu.read(place, data.shape, np.int32), np.sort(data, axis=1))


def test_structs_as_parameters_and_results(results):
    fields = {"names": ["a", "d", "c"], "formats": [("i4", 6), "f8", "i1"], "offsets": [0, 24, 32], "itemsize": 40}
    records = np.zeros(THREADS, np.dtype(fields))
    records["a"], records["d"], records["c"] = np.arange(6 * THREADS).reshape(-1, 6), THREAD / 3, THREAD
    place = results.gpu.alloc(records.view(np.uint8))
    assert results.gpu.launch(results.module, "structs", 1, THREADS, params=[place, 3]).ok
    found = results.gpu.read(place, 40 * THREADS, np.uint8).view(records.dtype)
    records["a"][:, 3] += 1
    records["d"] *= 2
    records["c"] += 3
    for name in fields["names"]:
        np.testing.assert_array_equal(found[name], records[name])


def test_variadic_functions(results):
    expected = np.where(THREAD % 2, THREAD + 0.5 + THREAD**2 + 1.5, 3 * THREAD + 0.25)
    np.testing.assert_array_equal(results("variadic", dtype=np.float64), expected)


def test_alloca_in_a_recursive_function(results):
    np.testing.assert_array_equal(results("allocated"), [sum(n * (n + 1) // 2 for n in range(i % 8 + 1)) for i in range(THREADS)])


def test_what_a_called_function_prints(results):
    report = results.gpu.launch(results.module, "printed", 1, 1)
    assert report.ok and report.printed == ["1 of two\n", "0 of two\n"]


def test_a_recursion_deeper_than_the_stack_is_reported_with_its_place(gpu_and_module):
    gpu, module = gpu_and_module
    report = gpu.launch(module, "too_deep", 1, 32, params=[gpu.alloc(128)])
    (found,) = report.findings
    assert not report.ok and (found.kind, found.lanes) == ("stack-overflow", 0xFFFFFFF0) and "needs 2,064 bytes of stack" in found.message
    assert found.source.endswith(f"calls.cu:{line_of('unsigned even(unsigned n, unsigned k) {')}")
