/* Makes the calls of a text file and prints what came of each: `ok <variant> <empty>` or `refused <class> <words>`.
 *
 *   call <device> <kernel> <launch|plan|bytes:argument> <arguments>    (asked for bytes, it prints `bytes <number>`)
 *   tensor <name> null
 *   tensor <name> <data> <offset> <type> <id> <code> <bits> <lanes> <dimensions> <extents...> <0 | 1 strides...>
 *   integer <name> <value>
 *   number <name> <value>
 *   choice <name> <text>          (a text of - is a null choice)
 */
#include "zoo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 8, MOST_ARGUMENTS = 64, MOST_DIMENSIONS = 16 };

static int read_int(void)
{
    int value;
    if (scanf("%d", &value) != 1) abort();
    return value;
}

static char *read_word(char *word)
{
    if (scanf("%255s", word) != 1) abort();
    return word;
}

static int64_t read_number(void)
{
    int64_t value;
    if (scanf("%" SCNd64, &value) != 1) abort();
    return value;
}

int main(void)
{
    static zoo_device *devices[MOST_DEVICES];
    static char names[MOST_ARGUMENTS][256], choices[MOST_ARGUMENTS][256];
    static int64_t extents[MOST_ARGUMENTS][MOST_DIMENSIONS], strides[MOST_ARGUMENTS][MOST_DIMENSIONS];
    static DLTensor tensors[MOST_ARGUMENTS];
    char word[256], kernel[256], mode[256];
    while (scanf("%255s", word) == 1) {
        if (strcmp(word, "call")) abort();
        int which = read_int();
        read_word(kernel);
        read_word(mode);
        int count = read_int();
        zoo_argument arguments[MOST_ARGUMENTS];
        for (int index = 0; index < count; index++) {
            read_word(word);
            read_word(names[index]);
            if (!strcmp(word, "integer")) {
                arguments[index] = zoo_integer(names[index], read_number());
            } else if (!strcmp(word, "number")) {
                arguments[index] = zoo_number(names[index], strtod(read_word(word), NULL));
            } else if (!strcmp(word, "choice")) {
                read_word(choices[index]);
                arguments[index] = zoo_choice(names[index], strcmp(choices[index], "-") ? choices[index] : NULL);
            } else if (!strcmp(read_word(word), "null")) {
                arguments[index] = zoo_tensor(names[index], NULL);
            } else {
                DLTensor *tensor = &tensors[index];
                tensor->data = (void *)(uintptr_t)strtoull(word, NULL, 10);
                tensor->byte_offset = strtoull(read_word(word), NULL, 10);
                tensor->device.device_type = read_int();
                tensor->device.device_id = read_int();
                tensor->dtype.code = (uint8_t)read_int();
                tensor->dtype.bits = (uint8_t)read_int();
                tensor->dtype.lanes = (uint16_t)read_int();
                tensor->ndim = read_int();
                tensor->shape = tensor->ndim ? extents[index] : NULL;
                for (int axis = 0; axis < tensor->ndim; axis++) extents[index][axis] = read_number();
                tensor->strides = read_int() ? strides[index] : NULL;
                for (int axis = 0; axis < tensor->ndim && tensor->strides; axis++) strides[index][axis] = read_number();
                arguments[index] = zoo_tensor(names[index], tensor);
            }
        }
        if (!devices[which] && zoo_open(which, &devices[which])) {
            fprintf(stderr, "%s\n", zoo_last_error());
            return 1;
        }
        if (!strncmp(mode, "bytes:", 6)) {
            int64_t bytes;
            zoo_status refused = zoo_argument_bytes(devices[which], kernel, arguments, (size_t)count, mode + 6, &bytes);
            if (refused) printf("refused %s %s\n", zoo_status_name(refused), zoo_last_error());
            else printf("bytes %" PRId64 "\n", bytes);
            continue;
        }
        zoo_plan *plan;
        zoo_status status = zoo_prepare(devices[which], kernel, arguments, (size_t)count, NULL, &plan);
        if (status) {
            printf("refused %s %s\n", zoo_status_name(status), zoo_last_error());
            continue;
        }
        zoo_plan_shape shape = zoo_plan_describe(plan);
        if (!strcmp(mode, "plan")) status = zoo_plan_launch(plan, NULL);
        zoo_plan_free(plan);
        if (!strcmp(mode, "launch")) status = zoo_launch(devices[which], kernel, arguments, (size_t)count, NULL);
        if (status) {
            fprintf(stderr, "%s\n", zoo_last_error());
            return 1;
        }
        printf("ok %s %d\n", shape.variant, !shape.grid[0] || !shape.grid[1] || !shape.grid[2]);
    }
    for (int index = 0; index < MOST_DEVICES; index++) zoo_close(devices[index]);
    return 0;
}
