/* Quantises a bf16 matrix from a file on the real GPU, by a launch and by a plan replayed from a CUDA graph.
 *
 *   on_gpu X M K ELEMENT ROUNDING LAYOUT Q SCALES
 *
 * Writes the graph's results to the files Q and SCALES and fails unless the launch gave the same. The outputs have guard
 * bytes behind them, which must not change.
 */
#include "zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 4096, POISON = 0xA5 };

static void check(int failed, const char *what)
{
    if (!failed) return;
    fprintf(stderr, "%s: status %d; zoo says: %s\n", what, failed, zoo_last_error());
    exit(1);
}

static zoo_driver_function find(const char *symbol)
{
    zoo_driver_function function = zoo_driver(symbol);
    check(function == NULL, symbol);
    return function;
}

typedef int (*allocate)(uint64_t *, size_t);
typedef int (*fill)(uint64_t, unsigned char, size_t);
typedef int (*download)(void *, uint64_t, size_t);

static unsigned char *fetch(uint64_t address, size_t bytes)
{
    unsigned char *data = (unsigned char *)malloc(bytes + GUARD);
    check(data == NULL, "malloc");
    check(((download)find("cuMemcpyDtoH_v2"))(data, address, bytes + GUARD), "cuMemcpyDtoH");
    for (size_t index = 0; index < GUARD; index++) check(data[bytes + index] != POISON, "a byte behind an output changed");
    return data;
}

static void save(const char *path, const unsigned char *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    check(!file || fwrite(data, 1, bytes, file) != bytes || fclose(file), path);
}

int main(int count, char **words)
{
    if (count != 9) return 2;
    int64_t m = atoll(words[2]), k = atoll(words[3]), blocked = !strcmp(words[6], "blocked");
    int64_t shape[2] = {m, k}, plain[2] = {m, k / 32}, tiles[4] = {(m + 127) / 128, (k / 32 + 3) / 4, 32, 16};
    size_t x_bytes = (size_t)(2 * m * k), q_bytes = (size_t)(m * k);
    size_t scale_bytes = (size_t)(blocked ? tiles[0] * tiles[1] * 512 : plain[0] * plain[1]);
    unsigned char *x_data = (unsigned char *)malloc(x_bytes);
    FILE *file = fopen(words[1], "rb");
    check(!x_data || !file || fread(x_data, 1, x_bytes, file) != x_bytes || fclose(file), words[1]);

    zoo_device *device;
    check(zoo_open(0, &device), "zoo_open");
    void *context, *stream, *graph, *executable;
    uint64_t x_address, q_address, scales_address;
    check(((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0), "context");
    check(((int (*)(void *))find("cuCtxSetCurrent"))(context), "context");
    check(((int (*)(void **, unsigned))find("cuStreamCreate"))(&stream, 1), "stream");
    check(((allocate)find("cuMemAlloc_v2"))(&x_address, x_bytes), "memory");
    check(((allocate)find("cuMemAlloc_v2"))(&q_address, q_bytes + GUARD), "memory");
    check(((allocate)find("cuMemAlloc_v2"))(&scales_address, scale_bytes + GUARD), "memory");
    check(((int (*)(uint64_t, const void *, size_t))find("cuMemcpyHtoD_v2"))(x_address, x_data, x_bytes), "copy");

    DLTensor x = zoo_array((void *)(uintptr_t)x_address, 0, "bf16", 2, shape);
    DLTensor q = zoo_array((void *)(uintptr_t)q_address, 0, words[4], 2, shape);
    DLTensor scales = zoo_array((void *)(uintptr_t)scales_address, 0, "ue8m0", blocked ? 4 : 2, blocked ? tiles : plain);
    zoo_argument arguments[] = {zoo_tensor("x", &x), zoo_tensor("q", &q), zoo_tensor("scales", &scales), zoo_choice("rounding", words[5]),
                                zoo_choice("layout", words[6])};
    int (*begin)(void *, int) = (int (*)(void *, int))find("cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = (int (*)(void *, void **))find("cuStreamEndCapture");
    int (*synchronize)(void *) = (int (*)(void *))find("cuStreamSynchronize");
    const char *name = "quantize.mxfp8.rows";

    check(begin(stream, 0), "capture");
    zoo_status refused = zoo_launch(device, name, arguments, 5, stream);
    check(refused != ZOO_CAPTURE_ERROR, "loading under capture was not refused");
    check(end(stream, &graph), "the capture did not survive the refusal");

    unsigned char *results[2][2];
    for (int by_graph = 0; by_graph < 2; by_graph++) {
        check(((fill)find("cuMemsetD8_v2"))(q_address, POISON, q_bytes + GUARD), "fill");
        check(((fill)find("cuMemsetD8_v2"))(scales_address, POISON, scale_bytes + GUARD), "fill");
        check(((int (*)(void))find("cuCtxSynchronize"))(), "fill");
        if (by_graph) {
            zoo_plan *plan;
            check(zoo_prepare(device, name, arguments, 5, stream, &plan), "zoo_prepare");
            check(begin(stream, 0), "capture");
            check(zoo_plan_launch(plan, stream), "zoo_plan_launch");
            check(end(stream, &graph), "capture");
            zoo_plan_free(plan);
            check(((int (*)(void **, void *, uint64_t))find("cuGraphInstantiateWithFlags"))(&executable, graph, 0), "graph");
            for (int replay = 0; replay < 3; replay++) check(((int (*)(void *, void *))find("cuGraphLaunch"))(executable, stream), "graph");
        } else {
            check(zoo_launch(device, name, arguments, 5, stream), "zoo_launch");
        }
        check(synchronize(stream), "the kernel");
        results[by_graph][0] = fetch(q_address, q_bytes);
        results[by_graph][1] = fetch(scales_address, scale_bytes);
    }
    check(memcmp(results[0][0], results[1][0], q_bytes) || memcmp(results[0][1], results[1][1], scale_bytes), "the graph gave other bytes");
    save(words[7], results[1][0], q_bytes);
    save(words[8], results[1][1], scale_bytes);
    return 0;
}
