/* A DLPack consumer that gives its tensor back when the process ends, after Python. */
#include <stdio.h>

struct managed {
    char tensor[48];
    void *context;
    void (*deleter)(struct managed *);
};
static struct managed *held;

void keep(struct managed *managed) { held = managed; }

__attribute__((destructor)) static void give_back(void)
{
    if (held && held->deleter) held->deleter(held);
    puts("given back");
}
