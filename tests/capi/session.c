/* One scenario of a program's life with zoo, named by the first argument. Prints what the test asks about. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "zoo.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const kernel = "quantize.mxfp8.rows";
static int64_t shape[2] = {64, 128}, scratch_shape[2] = {64, 4};
static DLTensor x, d, scratch;
static zoo_argument arguments[3];

static void describe(int device)
{
    x = zoo_array((void *)0x100000, device, "bf16", 2, shape);
    d = zoo_array((void *)0x200000, device, "e4m3", 2, shape);
    scratch = zoo_array((void *)0x300000, device, "i32", 2, scratch_shape);
    arguments[0] = zoo_tensor("x", &x);
    arguments[1] = zoo_tensor("d", &d);
    arguments[2] = zoo_tensor("scratch", &scratch);
}

static zoo_device *open_device(int ordinal)
{
    zoo_device *device;
    if (zoo_open(ordinal, &device)) {
        printf("%s %d %s\n", "open", zoo_last_driver_status(), zoo_last_error());
        exit(0);
    }
    return device;
}

static void report(const char *what, zoo_status status)
{
    if (status) printf("%s: %s %d %s\n", what, zoo_status_name(status), zoo_last_driver_status(), zoo_last_error());
    else printf("%s: OK\n", what);
}

typedef int (*set_capture)(void *, int);
typedef long (*count_calls)(const char *);
typedef int (*current_context)(void **);
typedef int (*retain_context)(void **, int);
typedef int (*set_context)(void *);
typedef int (*context_state)(int, unsigned *, int *);

static zoo_driver_function driver(const char *symbol)
{
    zoo_driver_function function = zoo_driver(symbol);
    if (!function) abort();
    return function;
}

static long calls(const char *name) { return ((count_calls)driver("zoo_recorder_calls"))(name); }

static void *launch_often(void *device)
{
    for (int index = 0; index < 100; index++)
        if (zoo_launch((zoo_device *)device, kernel, arguments, 3, NULL)) {
            fprintf(stderr, "%s\n", zoo_last_error());
            exit(1);
        }
    return NULL;
}

int main(int count, char **words)
{
    if (count != 2) return 2;
    const char *scenario = words[1];
    describe(0);
    if (!strcmp(scenario, "launch")) {
        zoo_device *device = open_device(0);
        report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
        zoo_close(device);
    } else if (!strcmp(scenario, "unknown")) {
        zoo_device *device = open_device(0);
        report("launch", zoo_launch(device, "quantize.mxfp8.cols", arguments, 3, NULL));
        report("load", zoo_load(device, "gemm.*", NULL));
        zoo_close(device);
    } else if (!strcmp(scenario, "capture")) {
        zoo_device *device = open_device(0);
        set_capture set = (set_capture)driver("zoo_recorder_set_capture");
        void *context, *stream;
        ((retain_context)driver("cuDevicePrimaryCtxRetain"))(&context, 0);
        ((set_context)driver("cuCtxSetCurrent"))(context);
        ((int (*)(void **, unsigned))driver("cuStreamCreate"))(&stream, 1);
        set(stream, 1);
        zoo_plan *plan;
        report("launch while capturing", zoo_launch(device, kernel, arguments, 3, stream));
        report("prepare while capturing", zoo_prepare(device, kernel, arguments, 3, stream, &plan));
        printf("loads: %ld\n", calls("cuLibraryLoadData"));
        int loaded = 0;
        report("load", zoo_load(device, "quantize.*", &loaded));
        printf("loaded: %d, loads: %ld\n", loaded, calls("cuLibraryLoadData"));
        report("launch", zoo_launch(device, kernel, arguments, 3, stream));
        report("prepare", zoo_prepare(device, kernel, arguments, 3, stream, &plan));
        report("plan", zoo_plan_launch(plan, stream));
        zoo_plan_free(plan);
        zoo_close(device);
    } else if (!strcmp(scenario, "plan")) {
        static const char *const watched[] = {
            "cuCtxGetCurrent",     "cuCtxPushCurrent",    "cuCtxPopCurrent",    "cuLaunchKernelEx", "cuLibraryLoadData",
            "cuKernelGetFunction", "cuStreamIsCapturing", "cuFuncGetAttribute", "cuFuncLoad"};
        zoo_device *device = open_device(0);
        zoo_plan *plan;
        report("prepare", zoo_prepare(device, kernel, arguments, 3, NULL, &plan));
        long before[sizeof watched / sizeof *watched];
        for (size_t index = 0; index < sizeof watched / sizeof *watched; index++) before[index] = calls(watched[index]);
        for (int index = 0; index < 10; index++) zoo_plan_launch(plan, NULL);
        for (size_t index = 0; index < sizeof watched / sizeof *watched; index++)
            printf("%s %ld\n", watched[index], calls(watched[index]) - before[index]);
        zoo_plan_free(plan);
        zoo_close(device);
    } else if (!strcmp(scenario, "context")) {
        zoo_device *first = open_device(0), *second = open_device(1);
        current_context current = (current_context)driver("cuCtxGetCurrent");
        void *own, *now = NULL;
        report("launch on 0", zoo_launch(first, kernel, arguments, 3, NULL));
        current(&now);
        printf("nothing is current: %d\n", now == NULL);
        ((retain_context)driver("cuDevicePrimaryCtxRetain"))(&own, 1);
        ((set_context)driver("cuCtxSetCurrent"))(own);
        report("launch on 0", zoo_launch(first, kernel, arguments, 3, NULL));
        report("load", zoo_load(first, "*", NULL));
        report("wrong device", zoo_launch(second, kernel, arguments, 3, NULL));
        describe(1);
        report("launch on 1", zoo_launch(second, kernel, arguments, 3, NULL));
        current(&now);
        printf("the caller's is current: %d\n", now == own);
        printf("loads: %ld\n", calls("cuLibraryLoadData"));
        zoo_close(first);
        zoo_close(second);
        printf("unloads: %ld\n", calls("cuLibraryUnload"));
    } else if (!strcmp(scenario, "close")) {
        unsigned flags;
        int active = -1;
        zoo_device *device = open_device(0);
        report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
        zoo_close(device);
        ((context_state)driver("cuDevicePrimaryCtxGetState"))(0, &flags, &active);
        printf("active: %d, unloads: %ld\n", active, calls("cuLibraryUnload"));
        device = open_device(0);
        report("launch again", zoo_launch(device, kernel, arguments, 3, NULL));
        zoo_close(device);
        zoo_close(NULL);
    } else if (!strcmp(scenario, "threads")) {
        enum { THREADS = 8 };
        zoo_device *device = open_device(0);
        pthread_t threads[THREADS];
        for (int index = 0; index < THREADS; index++)
            if (pthread_create(&threads[index], NULL, launch_often, device)) return 1;
        for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
        printf("loads: %ld\n", calls("cuLibraryLoadData"));
        zoo_close(device);
    } else if (!strcmp(scenario, "fork")) {
        zoo_device *device = open_device(0);
        zoo_plan *plan;
        report("prepare", zoo_prepare(device, kernel, arguments, 3, NULL, &plan));
        fflush(stdout);
        if (fork() == 0) {
            zoo_device *other;
            report("plan", zoo_plan_launch(plan, NULL));
            report("open", zoo_open(0, &other));
            fflush(stdout);
            _exit(0);
        }
        wait(NULL);
        zoo_plan_free(plan);
        zoo_close(device);
    } else if (!strcmp(scenario, "bytes")) {
        zoo_device *device = open_device(0);
        int64_t bytes = -1;
        zoo_argument sized[2] = {zoo_integer("splits", 3), arguments[0]};
        report("scratch", zoo_argument_bytes(device, kernel, sized, 1, "scratch", &bytes));
        report("scratch", zoo_argument_bytes(device, kernel, sized, 2, "scratch", &bytes));
        printf("bytes without d: %lld\n", (long long)bytes);
        zoo_argument whole[3] = {arguments[0], arguments[1], zoo_integer("splits", 3)};
        report("scratch", zoo_argument_bytes(device, kernel, whole, 3, "scratch", &bytes));
        printf("bytes: %lld\n", (long long)bytes);
        report("splits", zoo_argument_bytes(device, kernel, whole, 3, "splits", &bytes));
        report("launch", zoo_launch(device, kernel, whole, 3, NULL));
        zoo_close(device);
    } else if (!strcmp(scenario, "arguments")) {
        zoo_device *device = open_device(0);
        zoo_argument twice[4] = {arguments[0], arguments[1], arguments[2], arguments[0]};
        report("twice", zoo_launch(device, kernel, twice, 4, NULL));
        zoo_argument kinds[3] = {zoo_integer("x", 3), arguments[1], arguments[2]};
        report("kind", zoo_launch(device, kernel, kinds, 3, NULL));
        zoo_argument number[4] = {arguments[0], arguments[1], arguments[2], zoo_tensor("splits", &x)};
        report("number", zoo_launch(device, kernel, number, 4, NULL));
        zoo_close(device);
    } else {
        return 2;
    }
    return 0;
}
