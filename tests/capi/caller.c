/* Makes the calls of a text file and prints what came of each: `ok <variant> <empty>` or `refused <class> <words>`.
 *
 *   call <device> <kernel> <launch|plan|bytes:argument> <arguments>    (asked for bytes, it prints `bytes <number>`)
 *   tensor <name> null
 *   tensor <name> <data> <offset> <type> <id> <code> <bits> <lanes> <dimensions> <extents...> <0 | 1 strides...>
 *   integer <name> <value>
 *   number <name> <value>
 *   choice <name> <text>          (a text of - is a null choice)
 */
#include "read_call.h"

enum { MOST_DEVICES = 8 };

int main(void)
{
    static zoo_device *devices[MOST_DEVICES];
    static call call;
    while (read_call(stdin, &call)) {
        if (!devices[call.device] && zoo_open(call.device, &devices[call.device])) {
            fprintf(stderr, "%s\n", zoo_last_error());
            return 1;
        }
        if (!strncmp(call.mode, "bytes:", 6)) {
            int64_t bytes;
            zoo_status refused =
                zoo_argument_bytes(devices[call.device], call.kernel, call.arguments, (size_t)call.count, call.mode + 6, &bytes);
            if (refused) printf("refused %s %s\n", zoo_status_name(refused), zoo_last_error());
            else printf("bytes %" PRId64 "\n", bytes);
            continue;
        }
        zoo_plan *plan;
        zoo_status status = zoo_prepare(devices[call.device], call.kernel, call.arguments, (size_t)call.count, NULL, &plan);
        if (status) {
            printf("refused %s %s\n", zoo_status_name(status), zoo_last_error());
            continue;
        }
        zoo_plan_shape shape = zoo_plan_describe(plan);
        if (!strcmp(call.mode, "plan")) status = zoo_plan_launch(plan, NULL);
        zoo_plan_free(plan);
        if (!strcmp(call.mode, "launch")) status = zoo_launch(devices[call.device], call.kernel, call.arguments, (size_t)call.count, NULL);
        if (status) {
            fprintf(stderr, "%s\n", zoo_last_error());
            return 1;
        }
        printf("ok %s %d\n", shape.variant, !shape.grid[0] || !shape.grid[1] || !shape.grid[2]);
    }
    for (int index = 0; index < MOST_DEVICES; index++) zoo_close(devices[index]);
    return 0;
}
