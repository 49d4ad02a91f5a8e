/* Opens the first GPU, loads every kernel that runs on it and says which. */
#include "zoo.h"

#include <stdio.h>

int main(void)
{
    zoo_device *device;
    if (zoo_open(0, &device)) {
        fprintf(stderr, "%s\n", zoo_last_error());
        return 1;
    }
    int failed = 0;
    for (int index = 0; index < zoo_kernel_count(); index++) {
        int loaded = 0;
        const char *name = zoo_kernel_name(index);
        zoo_status status = zoo_load(device, name, &loaded);
        if (status) printf("%s: %s\n", name, zoo_last_error());
        else printf("%s: variants loaded: %d\n    %s\n", name, loaded, zoo_kernel_summary(index));
        failed |= status != ZOO_OK;
    }
    zoo_close(device);
    return failed;
}
