/* Opens, loads, prepares, launches and closes, and then does all of it again; prints what came of each step, and what is left. */
#include "zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kernel = "quantize.mxfp8.rows";

static int report(const char *what, zoo_status status)
{
    if (status) printf("%s: %s %d %s\n", what, zoo_status_name(status), zoo_last_driver_status(), zoo_last_error());
    return status != ZOO_OK;
}

/* How many of its steps failed. */
static int live(void)
{
    int64_t shape[2] = {64, 128}, scratch_shape[2] = {64, 4};
    DLTensor x = zoo_array((void *)0x100000, 0, "bf16", 2, shape), d = zoo_array((void *)0x200000, 0, "e4m3", 2, shape);
    DLTensor scratch = zoo_array((void *)0x300000, 0, "i32", 2, scratch_shape);
    zoo_argument arguments[3] = {zoo_tensor("x", &x), zoo_tensor("d", &d), zoo_tensor("scratch", &scratch)};
    zoo_device *device;
    zoo_plan *plan;
    int failed = 0;
    if (report("open", zoo_open(0, &device))) return 1 + (device != NULL);
    if (report("prepare", zoo_prepare(device, kernel, arguments, 3, NULL, &plan))) {
        failed += 1 + (plan != NULL);
        if (report("prepare again", zoo_prepare(device, kernel, arguments, 3, NULL, &plan))) return failed + 1;
    }
    failed += report("plan", zoo_plan_launch(plan, NULL));
    failed += report("launch", zoo_launch(device, kernel, arguments, 3, NULL));
    failed += report("load", zoo_load(device, "*", NULL));
    failed += report("free", zoo_plan_free(plan));
    failed += report("close", zoo_close(device));
    return failed;
}

static zoo_driver_function driver(const char *symbol)
{
    zoo_driver_function function = zoo_driver(symbol);
    if (!function) abort();
    return function;
}

int main(void)
{
    void *current;
    printf("failed: %d\n", live());
    printf("failed the second time: %d\n", live());
    ((int (*)(void **))driver("cuCtxGetCurrent"))(&current);
    long (*held)(const char *) = (long (*)(const char *))driver("zoo_recorder_live");
    printf("libraries: %ld, contexts: %ld, current: %d\n", held("libraries"), held("contexts"), current != NULL);
    return 0;
}
