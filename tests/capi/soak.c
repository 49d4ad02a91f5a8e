/* Random calls of every function, from several threads at once, by a seed.
 *
 *   soak CALLS SEED THREADS COUNT
 *
 * CALLS is a file of good calls as caller.c reads it. Each is made as it is or changed in a few places. Whatever the caller does,
 * there is a status with words, and a handle means what it meant; the rest is for the sanitizers and the recorder to see.
 */
#include "read_call.h"

#include <pthread.h>

enum { MOST_DEVICES = 6, MOST_CALLS = 512, MOST_PLANS = 8 };

static call *calls[MOST_CALLS];
static int call_count, threads, count;
static uint64_t seed;
static zoo_device *devices[MOST_DEVICES];

typedef struct {
    uint64_t state;
    long succeeded, refused;
    zoo_plan *plans[MOST_PLANS];
    zoo_device *device; /* its own */
    call given;
} worker;

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "soak.c:%d: not so: %s; zoo says: %s\n", __LINE__, #condition, zoo_last_error()); \
            abort(); \
        } \
    } while (0)

/* SplitMix64 */
static uint64_t draw(worker *self, uint64_t below)
{
    uint64_t mixed = self->state += 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
    return (mixed ^ mixed >> 31) % below;
}

static int64_t odd_number(worker *self)
{
    static const int64_t odd[] = {0, 1, -1, 2, 3, 15, 16, 17, 32, 127, 128, 129, 4096, 65536, 1 << 30};
    static const int64_t large[] = {
        INT64_MAX, INT64_MIN, INT64_MAX - 15, INT32_MAX, INT32_MIN, (int64_t)1 << 32, (int64_t)1 << 48, (int64_t)1 << 62};
    return draw(self, 2) ? odd[draw(self, sizeof odd / sizeof *odd)] : large[draw(self, sizeof large / sizeof *large)];
}

/* A copy whose pointers point into itself. */
static void copy_call(call *to, const call *from)
{
    to->device = from->device;
    to->count = from->count;
    memcpy(to->kernel, from->kernel, sizeof to->kernel);
    for (int index = 0; index < from->count; index++) {
        const DLTensor *tensor = &from->tensors[index];
        memcpy(to->names[index], from->names[index], sizeof to->names[index]);
        memcpy(to->choices[index], from->choices[index], sizeof to->choices[index]);
        memcpy(to->extents[index], from->extents[index], sizeof to->extents[index]);
        memcpy(to->strides[index], from->strides[index], sizeof to->strides[index]);
        to->tensors[index] = *tensor;
        to->tensors[index].shape = tensor->shape ? to->extents[index] : NULL;
        to->tensors[index].strides = tensor->strides ? to->strides[index] : NULL;
        to->arguments[index] = from->arguments[index];
        to->arguments[index].name = to->names[index];
        if (from->arguments[index].kind == ZOO_TENSOR && from->arguments[index].value.tensor)
            to->arguments[index].value.tensor = &to->tensors[index];
        if (from->arguments[index].kind == ZOO_CHOICE && from->arguments[index].value.choice)
            to->arguments[index].value.choice = to->choices[index];
    }
}

static void change_tensor(worker *self, call *given, int index)
{
    DLTensor *tensor = &given->tensors[index];
    int64_t number = odd_number(self);
    int axis = (int)draw(self, 4);
    switch (draw(self, 9)) {
    case 0: tensor->data = (void *)(uintptr_t)number; break;
    case 1: tensor->byte_offset = (uint64_t)number; break;
    case 2: tensor->ndim = draw(self, 2) ? (int32_t)number : (int32_t)draw(self, 6); break;
    case 3: tensor->dtype.code = (uint8_t)draw(self, 20); break;
    case 4: tensor->dtype.bits = (uint8_t)number; break;
    case 5: tensor->device.device_type = (int32_t)draw(self, 15); break;
    case 6: tensor->shape = NULL; break;
    case 7: given->extents[index][axis] = number; break;
    default: given->strides[index][axis] = number; tensor->strides = draw(self, 3) ? given->strides[index] : NULL;
    }
    if (tensor->ndim > 4) tensor->ndim = MOST_DIMENSIONS; /* so many numbers are there */
}

/* Returns the count of arguments that is told. */
static size_t change(worker *self, call *given)
{
    static const char *const names[] = {"variant", "", "x", "stream", "a.present", "layout"};
    static const int kinds[] = {-1, 4, 77, 1 << 20};
    if (!given->count) return 0;
    int index = (int)draw(self, (uint64_t)given->count), other = (int)draw(self, (uint64_t)given->count);
    zoo_argument *argument = &given->arguments[index];
    int kind = kinds[draw(self, 4)];
    switch (draw(self, 12)) {
    case 0: argument->name = draw(self, 4) ? names[draw(self, 6)] : NULL; break;
    case 1: memcpy(&argument->kind, &kind, sizeof kind); break;
    case 2: *argument = zoo_integer(argument->name, odd_number(self)); break;
    case 3: *argument = zoo_number(argument->name, (double)odd_number(self) / 3); break;
    case 4: *argument = zoo_choice(argument->name, draw(self, 3) ? names[draw(self, 6)] : NULL); break;
    case 5: *argument = zoo_tensor(argument->name, draw(self, 3) ? &given->tensors[other] : NULL); break;
    case 6: return draw(self, 8) ? draw(self, (uint64_t)given->count) : SIZE_MAX - draw(self, 2);
    case 7:
        argument->value = given->arguments[other].value;
        argument->kind = given->arguments[other].kind;
        break;
    default:
        if (argument->kind == ZOO_TENSOR && argument->value.tensor == &given->tensors[index]) change_tensor(self, given, index);
    }
    return (size_t)given->count;
}

static void see(worker *self, zoo_status status)
{
    REQUIRE((int)status >= 0 && status <= ZOO_MEMORY_ERROR);
    if (status) REQUIRE(strlen(zoo_last_error()) > 10);
    REQUIRE(status != ZOO_INTEGRITY_ERROR && status != ZOO_DRIVER_ERROR && status != ZOO_FORK_ERROR && status != ZOO_MEMORY_ERROR);
    if (status) self->refused++;
    else self->succeeded++;
}

static void make_call(worker *self)
{
    call *given = &self->given;
    copy_call(given, calls[draw(self, (uint64_t)call_count)]);
    size_t told = (size_t)given->count;
    for (uint64_t changes = draw(self, 4); changes > 0; changes--) told = change(self, given);
    zoo_device *device = draw(self, 16) ? devices[given->device] : self->device;
    const char *kernel = draw(self, 50) ? given->kernel : draw(self, 2) ? "gemm.mxfp8.none" : NULL;
    zoo_plan **plan = &self->plans[draw(self, MOST_PLANS)];
    int64_t bytes;
    switch (draw(self, 4)) {
    case 0: see(self, zoo_launch(device, kernel, given->arguments, told, NULL)); break;
    case 1:
        see(self, zoo_argument_bytes(device, kernel, given->arguments, told, given->names[draw(self, 1 + (uint64_t)given->count)], &bytes));
        break;
    default: {
        REQUIRE(zoo_plan_free(*plan) == ZOO_OK);
        zoo_status status = zoo_prepare(device, kernel, given->arguments, told, NULL, plan);
        see(self, status);
        REQUIRE((status == ZOO_OK) == (*plan != NULL));
        REQUIRE((status == ZOO_OK) == (zoo_plan_describe(*plan).symbol != NULL));
    }
    }
}

static void use_plan(worker *self)
{
    zoo_plan **plan = &self->plans[draw(self, MOST_PLANS)], *old = *plan;
    see(self, zoo_plan_launch(old, NULL));
    if (!old || draw(self, 4)) return;
    *plan = NULL;
    REQUIRE(zoo_plan_free(old) == ZOO_OK);
    REQUIRE(zoo_plan_launch(old, NULL) == ZOO_ARGUMENT_ERROR);
    REQUIRE(zoo_plan_free(old) == ZOO_ARGUMENT_ERROR);
    REQUIRE(zoo_plan_describe(old).symbol == NULL);
}

static void turn_device(worker *self)
{
    zoo_device *old = self->device;
    if (!old) {
        REQUIRE(zoo_open((int)draw(self, MOST_DEVICES), &self->device) == ZOO_OK);
        return;
    }
    self->device = NULL;
    REQUIRE(zoo_close(old) == ZOO_OK);
    REQUIRE(zoo_close(old) == ZOO_ARGUMENT_ERROR);
    REQUIRE(zoo_load(old, "*", NULL) == ZOO_ARGUMENT_ERROR);
}

static void open_nothing(worker *self)
{
    zoo_device *none = devices[0];
    REQUIRE(zoo_open(MOST_DEVICES + (int)draw(self, 100), &none) == ZOO_DRIVER_ERROR && none == NULL);
}

static void *work(void *argument)
{
    static const char *const patterns[] = {"*", "gemm.*", "quantize.*", "[", "none", ""};
    worker *self = (worker *)argument;
    int loaded;
    for (int index = 0; index < count; index++) {
        uint64_t what = draw(self, 40);
        if (what < 28) make_call(self);
        else if (what < 35) use_plan(self);
        else if (what < 37)
            see(self, zoo_load(draw(self, 8) ? devices[draw(self, MOST_DEVICES)] : self->device, patterns[draw(self, 6)], &loaded));
        else if (what < 38) turn_device(self);
        else if (what < 39) REQUIRE((zoo_driver("cuInit") != NULL) && zoo_driver("cuNothing") == NULL);
        else open_nothing(self);
    }
    for (int index = 0; index < MOST_PLANS; index++) REQUIRE(zoo_plan_free(self->plans[index]) == ZOO_OK);
    REQUIRE(zoo_close(self->device) == ZOO_OK);
    return NULL;
}

int main(int words, char **word)
{
    if (words != 5) return 2;
    FILE *file = fopen(word[1], "r");
    if (!file) return 2;
    for (;;) {
        calls[call_count] = (call *)calloc(1, sizeof *calls[0]);
        if (call_count + 1 == MOST_CALLS || !read_call(file, calls[call_count])) break;
        call_count++;
    }
    fclose(file);
    seed = strtoull(word[2], NULL, 10);
    threads = atoi(word[3]);
    count = atoi(word[4]);
    for (int index = 0; index < MOST_DEVICES; index++) REQUIRE(zoo_open(index, &devices[index]) == ZOO_OK);
    worker *workers = (worker *)calloc((size_t)threads, sizeof *workers);
    pthread_t *running = (pthread_t *)calloc((size_t)threads, sizeof *running);
    long succeeded = 0, refused = 0;
    for (int index = 0; index < threads; index++) {
        workers[index].state = seed * 1000 + (uint64_t)index;
        REQUIRE(pthread_create(&running[index], NULL, work, &workers[index]) == 0);
    }
    for (int index = 0; index < threads; index++) {
        pthread_join(running[index], NULL);
        succeeded += workers[index].succeeded;
        refused += workers[index].refused;
    }
    long (*live)(const char *) = (long (*)(const char *))zoo_driver("zoo_recorder_live");
    REQUIRE(live("contexts") == MOST_DEVICES);
    for (int index = 0; index < MOST_DEVICES; index++) REQUIRE(zoo_close(devices[index]) == ZOO_OK);
    REQUIRE(live("libraries") == 0 && live("contexts") == 0);
    printf("%ld succeeded, %ld refused\n", succeeded, refused);
    while (call_count >= 0) free(calls[call_count--]);
    free(workers);
    free(running);
    return 0;
}
