/* Calls on a device that was opened for an arch, in a process without a driver. Prints the status and the words of each. */
#include "zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const kernel = "quantize.mxfp8.rows";

static void report(const char *what, zoo_status status)
{
    if (status) printf("%s: %s %s\n", what, zoo_status_name(status), zoo_last_error());
    else printf("%s: OK\n", what);
    fflush(stdout);
}

static zoo_status open_as(const char *arch, int multiprocessors, zoo_device **device)
{
    char words[64];
    zoo_status status = zoo_open_arch(arch, multiprocessors, device);
    snprintf(words, sizeof words, "open %s, %d", arch ? arch : "NULL", multiprocessors);
    report(words, status);
    if (status && *device) puts("and there is a device");
    return status;
}

static void all_calls(zoo_device *device)
{
    int64_t shape[2] = {64, 128}, scratch_shape[2] = {64, 4}, bytes = -1;
    int loaded = -1;
    DLTensor x = zoo_array((void *)0x100000, 0, "bf16", 2, shape), d = zoo_array((void *)0x200000, 0, "e4m3", 2, shape);
    DLTensor scratch = zoo_array((void *)0x300000, 0, "i32", 2, scratch_shape);
    zoo_argument arguments[] = {zoo_tensor("x", &x), zoo_tensor("d", &d), zoo_tensor("scratch", &scratch)};
    zoo_plan *plan = NULL;
    report("bytes", zoo_argument_bytes(device, kernel, arguments, 2, "scratch", &bytes));
    printf("%lld bytes\n", (long long)bytes);
    report("prepare", zoo_prepare(device, kernel, arguments, 3, (void *)1, &plan));
    zoo_plan_shape found = zoo_plan_describe(plan);
    printf("%s of %s, grid %u, threads %u\n", found.variant, found.arch, found.grid[0], found.threads);
    report("launch the plan", zoo_plan_launch(plan, NULL));
    printf("status of the driver: %d\n", zoo_last_driver_status());
    report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
    report("load", zoo_load(device, "*", &loaded));
    printf("loaded: %d, driver: %d\n", loaded, zoo_driver("cuInit") == NULL);
    scratch_shape[1] = 5;
    report("a wrong shape", zoo_launch(device, kernel, arguments, 3, NULL));
    scratch_shape[1] = 4;
    x.device.device_id = 1;
    report("another device", zoo_launch(device, kernel, arguments, 3, NULL));
    report("free the plan", zoo_plan_free(plan));
}

int main(void)
{
    static const char *const wrong[] = {NULL, "", "sm_", "sm_9a", "sm_90", "sm_90b", "sm_90aa", "sm_1000a", "SM_90a", "hoppers"};
    zoo_device *device = (zoo_device *)1, *other, *called;
    for (size_t index = 0; index < sizeof wrong / sizeof *wrong; index++) open_as(wrong[index], 132, &device);
    open_as("sm_90a", 0, &device);
    report("open into NULL", zoo_open_arch("sm_90a", 132, NULL));
    if (open_as("sm_90a", 132, &device)) return 1;
    if (open_as("sm_120a", 170, &other)) return 1;
    if (open_as("H200", 132, &called) || zoo_close(called) || open_as("blackwell", 148, &called) || zoo_close(called)) return 1;
    all_calls(device);
    zoo_plan *plan;
    report("prepare on the other", zoo_prepare(other, kernel, NULL, 0, NULL, &plan));
    report("close the other", zoo_close(other));
    pid_t child = fork();
    if (child == 0) {
        all_calls(device);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child: %d\n", status);
    report("a GPU", zoo_open(0, &other));
    report("close", zoo_close(device));
    report("close again", zoo_close(device));
    return 0;
}
