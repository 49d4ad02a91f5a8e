// A host program as users write them, for `zoo emulate PROGRAM`. Its argument says what it does; it ends with status 0 if all values are right.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void check(bool right, const char* what, int line) {
    if (right) return;
    printf("line %d: %s\n", line, what);
    exit(3);
}
#define CHECK(condition) check(condition, #condition, __LINE__)
#define CALL(call) check((call) == cudaSuccess, #call, __LINE__)

constexpr int N = 100;  // less than the threads of the grids
__constant__ float weights[2];
__device__ unsigned launched, arrived;

__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = weights[0] * a[i] + weights[1] * b[i];
    if (i == 0) atomicAdd(&launched, 1);
}

__global__ void past_the_end(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) x[i] = 1;
}

__global__ void reverse(int* x, bool waits) {
    extern __shared__ int row[];
    row[threadIdx.x] = x[threadIdx.x];
    if (waits) __syncthreads();
    x[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
}

// Each CTA writes the rank of its neighbour, read from the neighbour's shared memory.
__global__ void neighbours(unsigned* ranks) {
    __shared__ unsigned mine;
    unsigned rank, at = __cvta_generic_to_shared(&mine), found;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) mine = rank;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank ^ 1));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(found) : "r"(at));
    if (threadIdx.x == 0) ranks[blockIdx.x] = found;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The CTAs wait for each other.
__global__ void sum_of_all(const int* x, int* partial, int* sum) {
    if (threadIdx.x > 0) return;
    partial[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    atomicAdd(&arrived, 1);
    while (*(volatile unsigned*)&arrived < gridDim.x);
    if (blockIdx.x == 0)
        for (int i = 0; i < gridDim.x; ++i) *sum += partial[i];
}

__device__ void expect_256_bytes(unsigned barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;\nfence.proxy.async;" ::"r"(barrier));
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(barrier));
}

__device__ void wait(unsigned barrier) {
    __syncthreads();
    asm volatile("{.reg .pred p;\nwait: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n@!p bra wait;}" ::"r"(barrier)
                 : "memory");
}

// Loads 16 pixels of 4 channels by the tensor map, the filter at (w, n) = (-1, 0) and its place 1.
__global__ void load_pixels(const __grid_constant__ CUtensorMap map, int* out) {
    __shared__ alignas(128) int pixels[64];
    __shared__ uint64_t barrier;
    unsigned to = __cvta_generic_to_shared(pixels), at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        expect_256_bytes(at);
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5], {%6};" ::
                "r"(to),
            "l"(&map), "r"(0), "r"(-1), "r"(0), "r"(at), "h"((short)1)
            : "memory");
    }
    wait(at);
    out[threadIdx.x] = pixels[threadIdx.x];
}

// Loads a box of 8 x 8 by the tensor map, and writes it row by row.
__global__ void load_box(const __grid_constant__ CUtensorMap map, int* out) {
    __shared__ alignas(128) int box[64];
    __shared__ uint64_t barrier;
    unsigned to = __cvta_generic_to_shared(box), at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        expect_256_bytes(at);
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
            "l"(&map), "r"(8), "r"(16), "r"(at)
            : "memory");
    }
    wait(at);
    out[threadIdx.x] = box[threadIdx.x];
}

__global__ void hello(int number) { printf("kernel says %d\n", number); }

// ---- what a program does
static void adds() {
    float host[3][N], factors[2] = {2, 3}, *a, *b, *c;
    for (int i = 0; i < N; ++i) host[0][i] = i, host[1][i] = 1;
    CALL(cudaMalloc(&a, sizeof *host));
    CALL(cudaMalloc(&b, sizeof *host));
    CALL(cudaMallocManaged(&c, sizeof *host));
    CALL(cudaMemcpyToSymbol(weights, factors, sizeof factors));
    cudaStream_t copies, work;
    cudaEvent_t copied, start, end;
    CALL(cudaStreamCreate(&copies));
    CALL(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    CALL(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    CALL(cudaEventCreate(&start));
    CALL(cudaEventCreate(&end));
    CALL(cudaMemcpyAsync(a, host[0], sizeof *host, cudaMemcpyHostToDevice, copies));
    CALL(cudaMemcpyAsync(b, host[1], sizeof *host, cudaMemcpyDefault, copies));
    CALL(cudaEventRecord(copied, copies));
    CALL(cudaStreamWaitEvent(work, copied));
    CALL(cudaEventRecord(start, work));
    add<<<4, 32, 0, work>>>(a, b, c, N);
    CALL(cudaGetLastError());
    CALL(cudaEventRecord(end, work));
    CALL(cudaEventSynchronize(end));
    float milliseconds;
    CALL(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds > 0);
    for (int i = 0; i < N; ++i) CHECK(c[i] == 2 * i + 3);
    unsigned times;
    CALL(cudaMemcpyFromSymbol(&times, launched, sizeof times));
    CHECK(times == 1);

    // a graph of two streams, launched twice: c = 2 c + 3
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    float* ones;
    CALL(cudaMalloc(&ones, sizeof *host));
    CALL(cudaStreamBeginCapture(work, cudaStreamCaptureModeGlobal));
    CALL(cudaEventRecord(start, work));
    CALL(cudaStreamWaitEvent(copies, start));
    CALL(cudaMemcpyAsync(ones, host[1], sizeof *host, cudaMemcpyHostToDevice, copies));
    CALL(cudaEventRecord(copied, copies));
    CALL(cudaStreamWaitEvent(work, copied));
    add<<<4, 32, 0, work>>>(c, ones, c, N);
    CHECK(cudaStreamSynchronize(work) == cudaErrorStreamCaptureUnsupported);
    CALL(cudaStreamEndCapture(work, &graph));
    CHECK(c[1] == 5);
    CALL(cudaGraphInstantiate(&executable, graph, 0));
    CALL(cudaGraphLaunch(executable, work));
    CALL(cudaGraphLaunch(executable, work));
    CALL(cudaStreamSynchronize(work));
    for (int i = 0; i < N; ++i) CHECK(c[i] == 4 * (2 * i + 3) + 9);
    CALL(cudaFree(c));
    CALL(cudaFree(a));
}

static void launches_with_attributes() {
    unsigned *ranks, of_host[8];
    CALL(cudaMalloc(&ranks, sizeof of_host));
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {2, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t configuration = {dim3(8), dim3(32), 0, nullptr, attributes, 2};
    CALL(cudaLaunchKernelEx(&configuration, neighbours, ranks));
    CALL(cudaMemcpy(of_host, ranks, sizeof of_host, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 8; ++i) CHECK(of_host[i] == (i % 2 ^ 1));
    int clusters;
    CALL(cudaOccupancyMaxActiveClusters(&clusters, neighbours, &configuration));
    CHECK(clusters == 132 * 32 / 2);

    int *x, *partial, *sum;
    CALL(cudaMallocHost(&x, 3 * sizeof *x));
    x[0] = 1, x[1] = 20, x[2] = 300;
    CALL(cudaMalloc(&partial, 3 * sizeof *x));
    CALL(cudaMallocManaged(&sum, sizeof *sum));
    *sum = 0;
    void* arguments[] = {&x, &partial, &sum};
    CALL(cudaLaunchCooperativeKernel((void*)sum_of_all, dim3(3), dim3(64), arguments, 0, nullptr));
    CALL(cudaDeviceSynchronize());
    CHECK(*sum == 321);
    CHECK(cudaLaunchCooperativeKernel((void*)sum_of_all, dim3(132 * 32 + 1), dim3(64), arguments, 0, nullptr) ==
          cudaErrorCooperativeLaunchTooLarge);

    int *row, wide = 256, of_row[64];
    for (int i = 0; i < 64; ++i) of_row[i] = i;
    CALL(cudaMalloc(&row, sizeof of_row));
    CALL(cudaMemcpy(row, of_row, sizeof of_row, cudaMemcpyHostToDevice));
    CHECK((reverse<<<1, 64, 100 << 10>>>(row, true), cudaGetLastError()) == cudaErrorInvalidValue);
    CALL(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    CALL((reverse<<<1, 64, 100 << 10>>>(row, true), cudaGetLastError()));
    CHECK((reverse<<<1, 2048, wide>>>(row, true), cudaPeekAtLastError()) == cudaErrorInvalidConfiguration);
    CHECK(strcmp(cudaGetErrorString(cudaGetLastError()), "invalid configuration argument") == 0);
    CALL(cudaMemcpy(of_row, row, sizeof of_row, cudaMemcpyDeviceToHost));
    CHECK(of_row[0] == 63 && of_row[63] == 0);
}

static void copies_by_tensor_map() {
    static int matrix[32][32], of_host[64], *x, *out;
    for (int i = 0; i < 1024; ++i) matrix[i / 32][i % 32] = i;
    CALL(cudaMalloc(&x, sizeof matrix));
    CALL(cudaMalloc(&out, sizeof of_host));
    CALL(cudaMemcpy(x, matrix, sizeof matrix, cudaMemcpyHostToDevice));
    void* found;
    cudaDriverEntryPointQueryResult status;
    CALL(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status));
    CHECK(status == cudaDriverEntryPointSuccess);
    auto encode = (decltype(&cuTensorMapEncodeTiled))found;
    CUtensorMap map;
    cuuint64_t dims[] = {32, 32}, strides[] = {128};
    cuuint32_t box[] = {8, 8}, steps[] = {1, 1};
    auto encoded = [&](cuuint64_t stride) {
        strides[0] = stride;
        return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, x, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CHECK(encoded(132) == CUDA_ERROR_INVALID_VALUE);
    CHECK(encoded(128) == CUDA_SUCCESS);
    load_box<<<1, 64>>>(map, out);
    CALL(cudaMemcpy(of_host, out, sizeof of_host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; ++i) CHECK(of_host[i] == (16 + i / 8) * 32 + 8 + i % 8);

    // the same memory as 2 images of 128 pixels of 4 channels, of which the first 10 pixels are used
    CALL(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2col", &found, 12000, cudaEnableDefault, &status));
    auto encode_pixels = (decltype(&cuTensorMapEncodeIm2col))found;
    cuuint64_t sizes[] = {4, 10, 2}, pitches[] = {16, 2048};
    cuuint32_t ones[] = {1, 1, 1};
    int lower = -1, upper = 0;
    auto encoded_pixels = [&] {
        return encode_pixels(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 3, x, sizes, pitches, &lower, &upper, 4, 16, ones,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    lower = 10;
    CHECK(encoded_pixels() == CUDA_ERROR_INVALID_VALUE);
    lower = -1;
    CHECK(encoded_pixels() == CUDA_SUCCESS);
    load_pixels<<<1, 64>>>(map, out);
    CALL(cudaMemcpy(of_host, out, sizeof of_host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; ++i) {
        int pixel = i / 4 % 11, image = i / 4 / 11;  // the filter moves from -1 to 9, its place 1 from 0 to 10
        CHECK(of_host[i] == (pixel < 10 ? 512 * image + 4 * pixel + i % 4 : 0));
    }

    // no kernel of this arch reads a wide map
    CALL(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2colWide", &found, 12080, cudaEnableDefault, &status));
    auto encode_wide = (decltype(&cuTensorMapEncodeIm2colWide))found;
    auto encoded_wide = [&](CUtensorMapSwizzle swizzle) {
        return encode_wide(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 3, x, sizes, pitches, -1, 0, 4, 16, ones,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128, swizzle,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CHECK(encoded_wide(CU_TENSOR_MAP_SWIZZLE_NONE) == CUDA_ERROR_INVALID_VALUE);
    CHECK(encoded_wide(CU_TENSOR_MAP_SWIZZLE_64B) == CUDA_SUCCESS);
}

static void asks_for_limits() {
    cudaDeviceProp properties;
    CALL(cudaGetDeviceProperties(&properties, 0));
    CHECK(properties.major == 9 && properties.minor == 0 && properties.multiProcessorCount == 132 && properties.warpSize == 32);
    CHECK(properties.sharedMemPerBlockOptin == 232448 && properties.sharedMemPerMultiprocessor == 233472);
    CHECK(properties.maxThreadsPerMultiProcessor == 2048 && properties.maxBlocksPerMultiProcessor == 32 &&
          properties.clusterLaunch == 1);
    CHECK(properties.cooperativeLaunch == 1 && properties.maxGridSize[0] == 2147483647 && properties.totalConstMem == 65536);
    int blocks, threads, least;
    CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, 256, 50 << 10));
    CHECK(blocks == 4);
    CALL(cudaOccupancyMaxPotentialBlockSize(&least, &threads, add));
    CHECK(least == 2 * 132 && threads == 1024);
    cudaFuncAttributes attributes;
    CALL(cudaFuncGetAttributes(&attributes, load_box));
    CHECK(attributes.sharedSizeBytes >= 264 && attributes.maxThreadsPerBlock == 1024 && attributes.ptxVersion == 90);
    void *pinned, *managed, *of_the_device;
    CALL(cudaMallocHost(&pinned, 8));
    CALL(cudaMallocManaged(&managed, 8));
    CALL(cudaMalloc(&of_the_device, 8));
    auto kind = [](const void* pointer) {
        cudaPointerAttributes of;
        CALL(cudaPointerGetAttributes(&of, pointer));
        return of.type;
    };
    CHECK(kind(pinned) == cudaMemoryTypeHost && kind(managed) == cudaMemoryTypeManaged &&
          kind(of_the_device) == cudaMemoryTypeDevice);
    CHECK(kind(&properties) == cudaMemoryTypeUnregistered);
    CALL(cudaHostRegister(&properties, sizeof properties, cudaHostRegisterDefault));
    CALL(cudaHostUnregister(&properties));
    int peer = 1;
    CALL(cudaDeviceCanAccessPeer(&peer, 0, 0));
    CHECK(peer == 0);
    cudaMemPool_t pool;
    uint64_t kept = 1 << 20;
    CALL(cudaDeviceGetDefaultMemPool(&pool, 0));
    CALL(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    CHECK(cudaFree(&properties) == cudaErrorInvalidValue);
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
    cudaGetLastError();
}

static void loads_ptx_by_the_driver() {
    const char* ptx =
        ".version 8.0\n.target sm_90\n.address_size 64\n.global .u32 base = 40;\n"
        ".visible .entry plus(.param .u64 x, .param .u32 y) {\n.reg .b32 %r<3>;\n.reg .b64 %a;\nld.param.u64 %a, [x];\n"
        "ld.param.u32 %r0, [y];\nld.global.u32 %r1, [base];\nadd.u32 %r2, %r0, %r1;\nst.global.u32 [%a], %r2;\nret;\n}\n";
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != nullptr);
#define DRIVER(name) auto name##_ = (decltype(&name))dlsym(driver, #name)
    DRIVER(cuInit);
    DRIVER(cuModuleLoadData);
    DRIVER(cuModuleGetFunction);
    DRIVER(cuLaunchKernel);
    CUmodule module;
    CUfunction function;
    int *x, y = 2, found;
    CALL(cudaMalloc(&x, sizeof *x));
    CHECK(cuInit_(0) == CUDA_SUCCESS && cuModuleLoadData_(&module, ptx) == CUDA_SUCCESS);
    CHECK(cuModuleGetFunction_(&function, module, "minus") == CUDA_ERROR_NOT_FOUND);
    CHECK(cuModuleGetFunction_(&function, module, "plus") == CUDA_SUCCESS);
    void* arguments[] = {&x, &y};
    CHECK(cuLaunchKernel_(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS);
    CALL(cudaMemcpy(&found, x, sizeof found, cudaMemcpyDeviceToHost));
    CHECK(found == 42);
}

__device__ __noinline__ int below(int n, int* x) {
    if (n == 0) return 0;
    int found = below(n - 1, x);
    x[threadIdx.x] += found;
    return found + 1;
}
__global__ void recursion(int* x, int n) { below(n, x); }

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ int (*chosen)(int) = twice;
__global__ void apply(int* x, int (*function)(int)) { x[threadIdx.x] = function(x[threadIdx.x]); }

static void sets_the_stack() {
    int *x, found[32], (*function)(int);
    size_t bytes;
    CALL(cudaMalloc(&x, sizeof found));
    CALL(cudaMemset(x, 0, sizeof found));
    CALL(cudaDeviceGetLimit(&bytes, cudaLimitStackSize));
    CHECK(bytes == 1024);
    CALL(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    CALL(cudaDeviceGetLimit(&bytes, cudaLimitStackSize));
    CHECK(bytes == 4096);
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 1 << 20) == cudaErrorInvalidValue &&
          cudaGetLastError() == cudaErrorInvalidValue);
    recursion<<<1, 32>>>(x, 100);
    CALL(cudaMemcpyFromSymbol(&function, chosen, sizeof function));
    apply<<<1, 32>>>(x, function);
    CALL(cudaMemcpy(found, x, sizeof found, cudaMemcpyDeviceToHost));
    for (int value : found) CHECK(value == 2 * 4950);
    CALL(cudaDeviceSetLimit(cudaLimitStackSize, 1024));
    recursion<<<1, 32>>>(x, 100);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    exit(0);
}

int main(int count, char** arguments) {
    const char* mode = count > 1 ? arguments[1] : "";
    if (strcmp(mode, "right") == 0) {
        adds();
        launches_with_attributes();
        copies_by_tensor_map();
        asks_for_limits();
        loads_ptx_by_the_driver();
        hello<<<1, 1>>>(count);
    } else if (strcmp(mode, "wrong") == 0) {
        float* x;
        int* row;
        CALL(cudaMalloc(&x, N * sizeof *x));
        CALL(cudaMalloc(&row, 64 * sizeof *row));
        CALL(cudaMemset(row, 0, 64 * sizeof *row));
        past_the_end<<<4, 32>>>(x, N);
        for (int i = 0; i < 2; ++i) reverse<<<1, 64, 256>>>(row, false);
    } else if (strcmp(mode, "stack") == 0) {
        sets_the_stack();
    } else if (strcmp(mode, "refused") == 0) {
        cudaExternalMemory_t memory;
        cudaExternalMemoryHandleDesc handle = {};
        printf("before\n");
        CALL(cudaImportExternalMemory(&memory, &handle));
        printf("behind\n");
    } else {
        return 4;
    }
    CALL(cudaDeviceSynchronize());
    return 0;
}
