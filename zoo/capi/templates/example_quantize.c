/* Quantises a matrix to MXFP8 on the first GPU and checks every element on the host.
 *
 * Memory and copies go through the driver that zoo opened, so that this program needs no CUDA header or library either;
 * a program with the CUDA runtime would call cudaMalloc and pass its own stream.
 */
#include "zoo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 300, K = 1024, BLOCK = 32 };

/* the few driver functions needed, by zoo_driver */
static int (*context_retain)(void **, int);
static int (*context_set)(void *);
static int (*memory_allocate)(uint64_t *, size_t);
static int (*memory_free)(uint64_t);
static int (*copy_to_device)(uint64_t, const void *, size_t);
static int (*copy_to_host)(void *, uint64_t, size_t);
static int (*stream_create)(void **, unsigned);
static int (*stream_synchronize)(void *);
static int (*stream_destroy)(void *);

static void check(int failed, const char *what)
{
    if (!failed) return;
    fprintf(stderr, "%s failed with status %d\n", what, failed);
    exit(1);
}

static void find(void *function, const char *symbol)
{
    zoo_driver_function found = zoo_driver(symbol);
    check(found == NULL, symbol);
    memcpy(function, &found, sizeof found);
}

/* The scale of a block by OCP MX 1.0: 2^(floor(log2(largest)) - 8), as the biased exponent that ue8m0 stores. */
static int scale_of(const float *values)
{
    float largest = 0;
    int exponent;
    for (int index = 0; index < BLOCK; index++) largest = fmaxf(largest, fabsf(values[index]));
    frexpf(largest, &exponent); /* largest = m * 2^exponent, m in [0.5, 1) */
    return largest == 0 ? 0 : exponent - 1 - 8 + 127;
}

/* An e4m3 code as a number: 1 sign, 4 exponent bits of bias 7, 3 mantissa bits, no infinity. */
static float decode(unsigned code)
{
    int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    float magnitude = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return code & 0x80 ? -magnitude : magnitude;
}

int main(void)
{
    zoo_device *device;
    if (zoo_open(0, &device)) {
        fprintf(stderr, "%s\n", zoo_last_error());
        return 1;
    }
    find(&context_retain, "cuDevicePrimaryCtxRetain");
    find(&context_set, "cuCtxSetCurrent");
    find(&memory_allocate, "cuMemAlloc_v2");
    find(&memory_free, "cuMemFree_v2");
    find(&copy_to_device, "cuMemcpyHtoD_v2");
    find(&copy_to_host, "cuMemcpyDtoH_v2");
    find(&stream_create, "cuStreamCreate");
    find(&stream_synchronize, "cuStreamSynchronize");
    find(&stream_destroy, "cuStreamDestroy_v2");
    void *context, *stream;
    check(context_retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(context_set(context), "cuCtxSetCurrent");
    check(stream_create(&stream, 1), "cuStreamCreate");

    /* the matrix: rows of very different sizes, so that scales differ */
    float *x = (float *)malloc(sizeof(float) * M * K);
    unsigned char *q = (unsigned char *)malloc(M * K), *scales = (unsigned char *)malloc(M * K / BLOCK);
    check(!x || !q || !scales, "malloc");
    uint32_t state = 1;
    for (int index = 0; index < M * K; index++) {
        state = state * 1664525u + 1013904223u;
        x[index] = ldexpf((float)(int32_t)state / 2147483648.0f, index / K % 21 - 10);
    }
    uint64_t x_address, q_address, scales_address;
    check(memory_allocate(&x_address, sizeof(float) * M * K), "cuMemAlloc");
    check(memory_allocate(&q_address, M * K), "cuMemAlloc");
    check(memory_allocate(&scales_address, M * K / BLOCK), "cuMemAlloc");
    check(copy_to_device(x_address, x, sizeof(float) * M * K), "cuMemcpyHtoD");

    int64_t shape[2] = {M, K}, scales_shape[2] = {M, K / BLOCK};
    DLTensor x_array = zoo_array((void *)(uintptr_t)x_address, 0, "f32", 2, shape);
    DLTensor q_array = zoo_array((void *)(uintptr_t)q_address, 0, "e4m3", 2, shape);
    DLTensor scales_array = zoo_array((void *)(uintptr_t)scales_address, 0, "ue8m0", 2, scales_shape);
    zoo_argument arguments[] = {zoo_tensor("x", &x_array), zoo_tensor("q", &q_array), zoo_tensor("scales", &scales_array)};
    zoo_plan *plan;
    if (zoo_prepare(device, "quantize.mxfp8.rows", arguments, 3, stream, &plan) || zoo_plan_launch(plan, stream)) {
        fprintf(stderr, "%s\n", zoo_last_error());
        return 1;
    }
    check(stream_synchronize(stream), "the kernel");
    zoo_plan_shape launched = zoo_plan_describe(plan);
    printf("quantised a %d x %d matrix with %s: %u CTAs of %u threads\n", M, K, launched.symbol, launched.grid[0], launched.threads);
    check(copy_to_host(q, q_address, M * K), "cuMemcpyDtoH");
    check(copy_to_host(scales, scales_address, M * K / BLOCK), "cuMemcpyDtoH");

    int wrong = 0;
    for (int index = 0; index < M * K; index++) {
        int scale = scales[index / BLOCK];
        float scaled = ldexpf(x[index], 127 - scale), wanted = fminf(fmaxf(scaled, -448.0f), 448.0f), got = decode(q[index]);
        int exponent;
        frexpf(wanted, &exponent);
        float half_step = ldexpf(1.0f, (exponent - 1 < -6 ? -6 : exponent - 1) - 4); /* 3 mantissa bits; subnormal below 2^-6 */
        if (scale != scale_of(x + index / BLOCK * BLOCK) || fabsf(got - wanted) > half_step) {
            if (!wrong++) printf("first wrong: row %d column %d: %g became %g * 2^%d\n", index / K, index % K, x[index], got, scale - 127);
        }
    }
    printf("row 0 begins %g %g %g, scale 2^%d, codes %02x %02x %02x\n", x[0], x[1], x[2], scales[0] - 127, q[0], q[1], q[2]);
    printf(wrong ? "%d of %d elements are wrong\n" : "all scales and elements are right: %d wrong of %d\n", wrong, M * K);

    /* what a refusal says */
    shape[1] = K + 1;
    if (zoo_launch(device, "quantize.mxfp8.rows", arguments, 3, stream)) printf("a wrong shape is refused: %s\n", zoo_last_error());

    zoo_plan_free(plan);
    check(memory_free(x_address), "cuMemFree");
    check(memory_free(q_address), "cuMemFree");
    check(memory_free(scales_address), "cuMemFree");
    check(stream_destroy(stream), "cuStreamDestroy");
    zoo_close(device);
    free(x);
    free(q);
    free(scales);
    return wrong != 0;
}
