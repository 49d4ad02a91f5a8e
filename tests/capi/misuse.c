/* One way to misuse the C library, named by the first argument. Prints the status and the words of each call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "zoo.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const kernel = "quantize.mxfp8.rows";
static int64_t shape[2] = {64, 128}, scratch_shape[2] = {64, 4};
static DLTensor x, d, scratch;
static zoo_argument arguments[3];
static zoo_device *device;

static void describe(void)
{
    x = zoo_array((void *)0x100000, 0, "bf16", 2, shape);
    d = zoo_array((void *)0x200000, 0, "e4m3", 2, shape);
    scratch = zoo_array((void *)0x300000, 0, "i32", 2, scratch_shape);
    arguments[0] = zoo_tensor("x", &x);
    arguments[1] = zoo_tensor("d", &d);
    arguments[2] = zoo_tensor("scratch", &scratch);
}

static void report(const char *what, zoo_status status)
{
    if (status) printf("%s: %s %s\n", what, zoo_status_name(status), zoo_last_error());
    else printf("%s: OK\n", what);
    fflush(stdout);
}

static zoo_plan *prepare(void)
{
    zoo_plan *plan;
    if (zoo_prepare(device, kernel, arguments, 3, NULL, &plan)) abort();
    return plan;
}

/* A call with arguments of which one is not as it should be, by every function that takes arguments. */
static void call_with(const char *what, const zoo_argument *given, size_t count)
{
    zoo_plan *plan = (zoo_plan *)&plan;
    int64_t bytes = -1;
    char words[64];
    snprintf(words, sizeof words, "launch with %s", what);
    report(words, zoo_launch(device, kernel, given, count, NULL));
    snprintf(words, sizeof words, "prepare with %s", what);
    report(words, zoo_prepare(device, kernel, given, count, NULL, &plan));
    if (plan) puts("and there is a plan");
    snprintf(words, sizeof words, "bytes with %s", what);
    report(words, zoo_argument_bytes(device, kernel, given, count, "scratch", &bytes));
    if (bytes != -1) puts("and there are bytes");
}

static void nulls(void)
{
    zoo_plan *plan = (zoo_plan *)&plan;
    int loaded = 77;
    int64_t bytes;
    report("open into NULL", zoo_open(0, NULL));
    report("close NULL", zoo_close(NULL));
    report("free NULL", zoo_plan_free(NULL));
    report("load on NULL", zoo_load(NULL, "*", &loaded));
    report("load NULL", zoo_load(device, NULL, &loaded));
    printf("loaded: %d\n", loaded);
    report("launch on NULL", zoo_launch(NULL, kernel, arguments, 3, NULL));
    report("launch NULL", zoo_launch(device, NULL, arguments, 3, NULL));
    report("prepare on NULL", zoo_prepare(NULL, kernel, arguments, 3, NULL, &plan));
    printf("plan is NULL: %d\n", plan == NULL);
    report("prepare NULL", zoo_prepare(device, NULL, arguments, 3, NULL, &plan));
    report("prepare into NULL", zoo_prepare(device, kernel, arguments, 3, NULL, NULL));
    report("launch the plan NULL", zoo_plan_launch(NULL, NULL));
    report("bytes on NULL", zoo_argument_bytes(NULL, kernel, arguments, 3, "scratch", &bytes));
    report("bytes of the kernel NULL", zoo_argument_bytes(device, NULL, arguments, 3, "scratch", &bytes));
    report("bytes of NULL", zoo_argument_bytes(device, kernel, arguments, 3, NULL, &bytes));
    report("bytes into NULL", zoo_argument_bytes(device, kernel, arguments, 3, "scratch", NULL));
    zoo_plan_shape described = zoo_plan_describe(NULL);
    printf("described: %d %s\n", described.variant == NULL && described.threads == 0 && described.grid[0] == 0, zoo_last_error());
    printf("driver: %d, dtype: %d\n", zoo_driver(NULL) == NULL, zoo_dtype(NULL).bits);
    printf("names: %d %d\n", zoo_kernel_name(-1) == NULL, zoo_kernel_summary(1 << 30) == NULL);
}

static void null_arguments(void)
{
    zoo_argument given[3] = {arguments[0], arguments[1], arguments[2]};
    call_with("NULL for arguments", NULL, 3);
    call_with("a wild count", given, (size_t)-1);
    given[1].name = NULL;
    call_with("a NULL name", given, 3);
    given[1] = zoo_choice("variant", NULL);
    call_with("a NULL choice", given, 3);
    DLTensor none = zoo_array((void *)0x200000, 0, NULL, 2, shape);
    given[1] = zoo_tensor("d", &none);
    call_with("a NULL dtype", given, 3);
    none = zoo_array((void *)0x200000, 0, "e4m3", 2, NULL);
    call_with("a NULL shape", given, 3);
    none = zoo_array(NULL, 0, "e4m3", 2, shape);
    call_with("a NULL address", given, 3);
    none.byte_offset = 4096;
    call_with("an offset from NULL", given, 3);
}

static void kinds(void)
{
    static const int unknown[] = {4, 77, -1, 1 << 30};
    for (size_t index = 0; index < sizeof unknown / sizeof *unknown; index++) {
        zoo_argument given[3] = {arguments[0], arguments[1], arguments[2]};
        memcpy(&given[0].kind, &unknown[index], sizeof unknown[index]);
        call_with("such a kind", given, 3);
    }
    zoo_argument number[4] = {arguments[0], arguments[1], arguments[2], zoo_integer("splits", 3)};
    memcpy(&number[3].kind, &unknown[1], sizeof unknown[1]);
    call_with("such a number", number, 4);
}

static void dimensions(void)
{
    static const int counts[] = {-1, 0, 1, 9, 1 << 30};
    for (size_t index = 0; index < sizeof counts / sizeof *counts; index++) {
        x.ndim = counts[index];
        report("dimensions", zoo_launch(device, kernel, arguments, 3, NULL));
    }
}

static void closed(void)
{
    zoo_plan *plan = prepare(), *made = (zoo_plan *)&made;
    zoo_device *other;
    int64_t bytes;
    int loaded;
    if (zoo_open(0, &other)) abort();
    report("close", zoo_close(device));
    report("close again", zoo_close(device));
    report("launch the plan", zoo_plan_launch(plan, NULL));
    report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
    report("prepare", zoo_prepare(device, kernel, arguments, 3, NULL, &made));
    printf("plan is NULL: %d\n", made == NULL);
    report("load", zoo_load(device, "*", &loaded));
    report("bytes", zoo_argument_bytes(device, kernel, arguments, 3, "scratch", &bytes));
    printf("still described: %s\n", zoo_plan_describe(plan).variant);
    report("free the plan", zoo_plan_free(plan));
    report("free it again", zoo_plan_free(plan));
    report("launch the freed plan", zoo_plan_launch(plan, NULL));
    printf("no longer described: %d %s\n", zoo_plan_describe(plan).variant == NULL, zoo_last_error());
    report("launch on the other", zoo_launch(other, kernel, arguments, 3, NULL));
    report("close the other", zoo_close(other));
}

/* What took the place of something closed is not reached by the old handle. */
static void reused(void)
{
    zoo_plan *old_plan = prepare();
    zoo_plan_free(old_plan);
    zoo_plan *plan = prepare();
    report("launch the old plan", zoo_plan_launch(old_plan, NULL));
    report("launch the new plan", zoo_plan_launch(plan, NULL));
    zoo_plan_free(plan);
    zoo_device *old_device = device;
    zoo_close(old_device);
    if (zoo_open(0, &device)) abort();
    report("launch on the old device", zoo_launch(old_device, kernel, arguments, 3, NULL));
    report("close the old device", zoo_close(old_device));
    report("launch on the new device", zoo_launch(device, kernel, arguments, 3, NULL));
    report("close the new device", zoo_close(device));
}

static void no_handles(void)
{
    char memory[64] = "neither a device nor a plan";
    void *const wrong[] = {memory, memory + 1, (void *)device, (void *)1, (void *)2, (void *)-1, (void *)-2, (void *)-3};
    zoo_plan *plan = prepare();
    for (size_t index = 0; index < sizeof wrong / sizeof *wrong; index++) {
        if (wrong[index] != (void *)device) report("close", zoo_close((zoo_device *)wrong[index]));
        report("free", zoo_plan_free((zoo_plan *)wrong[index]));
        report("launch", zoo_plan_launch((zoo_plan *)wrong[index], NULL));
    }
    report("close a plan", zoo_close((zoo_device *)plan));
    report("launch on a plan", zoo_launch((zoo_device *)plan, kernel, arguments, 3, NULL));
    zoo_plan_free(plan);
    report("close", zoo_close(device));
}

/* Thousands of plans at once, freed in another order: each handle names its own. */
static void many(void)
{
    enum { MANY = 5000 };
    static zoo_plan *plans[MANY];
    static int64_t rows[MANY][2];
    int wrong = 0;
    for (int round = 0; round < 2; round++) {
        for (int index = 0; index < MANY; index++) {
            rows[index][0] = 4 * (index + 1 + round);
            rows[index][1] = 32;
            int64_t scratch_rows[2] = {rows[index][0], 1};
            DLTensor own = zoo_array((void *)0x10000000, 0, "bf16", 2, rows[index]),
                     out = zoo_array((void *)0x20000000, 0, "e4m3", 2, rows[index]);
            DLTensor space = zoo_array((void *)0x30000000, 0, "i32", 2, scratch_rows);
            zoo_argument given[3] = {zoo_tensor("x", &own), zoo_tensor("d", &out), zoo_tensor("scratch", &space)};
            if (zoo_prepare(device, kernel, given, 3, NULL, &plans[index])) abort();
        }
        for (int index = 0; index < MANY; index++) wrong += zoo_plan_describe(plans[index]).grid[0] != (uint32_t)(index + 1 + round);
        for (int index = 0; index < MANY; index++) wrong += zoo_plan_free(plans[index * 7 % MANY]) != ZOO_OK;
        for (int index = 0; index < MANY; index++) wrong += zoo_plan_launch(plans[index], NULL) != ZOO_ARGUMENT_ERROR;
    }
    printf("wrong: %d\n", wrong);
    report("close", zoo_close(device));
}

static void offsets(void)
{
    static const uint64_t bases[] = {0x100000, 0x100000, 0x100000, 0x100000, 0xFFFFFFFFFFFFFF00u, 0x7FFFFFFFFFFFFF00u, 0x8000000000000000u};
    static const uint64_t further[] = {
        0xFFFFFFFFFFF00000u, 0xFFFFFFFFFFFFFF00u, 0x8000000000000000u, 0x7FFFFFFFFFF00000u, 0x100100, 0x100, 0};
    for (int repeated = 0; repeated < 2; repeated++) {
        for (size_t index = 0; index < sizeof bases / sizeof *bases; index++) {
            zoo_plan *plan;
            x.data = (void *)(uintptr_t)bases[index];
            x.byte_offset = further[index];
            report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
            report("prepare", zoo_prepare(device, kernel, arguments, 3, NULL, &plan));
        }
        describe();
        x.byte_offset = 256;
        report("a good one", zoo_launch(device, kernel, arguments, 3, NULL));
    }
    report("close", zoo_close(device));
}

static void *load_slowly(void *unused)
{
    (void)unused;
    zoo_load(device, "*", NULL);
    return NULL;
}

static void *open_slowly(void *unused)
{
    (void)unused;
    if (zoo_open(0, &device)) abort();
    return NULL;
}

/* A child that calls everything. A hang ends it by SIGALRM. */
static void fork_now(zoo_plan *plan)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        zoo_device *other;
        zoo_plan *made;
        int64_t bytes;
        alarm(20);
        report("open", zoo_open(0, &other));
        report("load", zoo_load(device, "*", NULL));
        report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
        report("prepare", zoo_prepare(device, kernel, arguments, 3, NULL, &made));
        report("bytes", zoo_argument_bytes(device, kernel, arguments, 3, "scratch", &bytes));
        report("launch the plan", zoo_plan_launch(plan, NULL));
        report("free the plan", zoo_plan_free(plan));
        report("close", zoo_close(device));
        printf("driver: %d\n", zoo_driver("cuInit") == NULL);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    fflush(stdout);
}

/* Until the recorder was asked for `name`, which takes it long. */
static void wait_for(const char *name)
{
    struct timespec moment = {0, 1000000};
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "zoo_recorder_calls");
    long (*calls)(const char *);
    memcpy(&calls, &found, sizeof found);
    while (calls(name) == 0) nanosleep(&moment, NULL);
}

int main(int count, char **words)
{
    if (count != 2) return 2;
    const char *scenario = words[1];
    pthread_t thread;
    describe();
    if (!strcmp(scenario, "fork while opening")) {
        if (pthread_create(&thread, NULL, open_slowly, NULL)) return 2;
        wait_for("cuInit");
        fork_now(NULL);
        pthread_join(thread, NULL);
        report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
        report("close", zoo_close(device));
        return 0;
    }
    if (zoo_open(0, &device)) return 2;
    if (!strcmp(scenario, "fork while loading")) {
        if (pthread_create(&thread, NULL, load_slowly, NULL)) return 2;
        wait_for("cuLibraryLoadData");
        fork_now(NULL);
        pthread_join(thread, NULL);
        report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
        report("close", zoo_close(device));
    } else if (!strcmp(scenario, "fork")) {
        zoo_plan *plan = prepare();
        fork_now(plan);
        report("launch the plan", zoo_plan_launch(plan, NULL));
        report("free the plan", zoo_plan_free(plan));
        report("close", zoo_close(device));
    } else if (!strcmp(scenario, "nulls")) {
        nulls();
    } else if (!strcmp(scenario, "null arguments")) {
        null_arguments();
    } else if (!strcmp(scenario, "kinds")) {
        kinds();
    } else if (!strcmp(scenario, "dimensions")) {
        dimensions();
    } else if (!strcmp(scenario, "closed")) {
        closed();
    } else if (!strcmp(scenario, "reused")) {
        reused();
    } else if (!strcmp(scenario, "no handles")) {
        no_handles();
    } else if (!strcmp(scenario, "many")) {
        many();
    } else if (!strcmp(scenario, "offsets")) {
        offsets();
    } else {
        return 2;
    }
    return 0;
}
