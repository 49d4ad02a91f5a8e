// Device memory, memory that host and device share, and copies between them.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stand_in.h"

static const uintptr_t FIRST = 0x700000000000, LAST = 0x710000000000;  // addresses of the emulator's global memory
static const size_t PAGE = 4096;

// Managed and pinned memory. The host's bytes are the truth; a launch takes them to the device and back.
static struct shared {
    char *start;
    size_t size;
    int pinned;
    struct shared *next;
} *all_shared;

static struct shared **shared_at(const void *pointer)
{
    struct shared **link = &all_shared;
    while (*link != NULL && ((char *)pointer < (*link)->start || (char *)pointer >= (*link)->start + (*link)->size)) link = &(*link)->next;
    return link;
}

enum { ORDINARY, PINNED, OF_THE_DEVICE, MANAGED };  // as the runtime numbers kinds of memory

static int kind_of(const void *pointer)
{
    hold();
    const struct shared *one = *shared_at(pointer);
    let_go();
    if (one != NULL) return one->pinned ? PINNED : MANAGED;
    return (uintptr_t)pointer >= FIRST && (uintptr_t)pointer < LAST ? OF_THE_DEVICE : ORDINARY;
}

static int is_shared(const void *pointer)
{
    int kind = kind_of(pointer);
    return kind == PINNED || kind == MANAGED;
}

static int on_device(const void *pointer) { return kind_of(pointer) == OF_THE_DEVICE; }

static int allocate(void **pointer, size_t size, size_t alignment)
{
    *pointer = NULL;
    if (size == 0) return SUCCESS;
    struct message answer = ask((struct message){ALLOCATE, 0, {size, alignment}}, NULL, NULL, 0);
    *pointer = (void *)answer.argument[0];
    return (int)answer.what;
}

EXPORT int cudaMalloc(void **pointer, size_t size) { return done(pointer == NULL ? INVALID_VALUE : allocate(pointer, size, 512)); }
SAME(cuMemAlloc_v2, cudaMalloc);

EXPORT int cudaMallocAsync(void **pointer, size_t size, struct stream *stream)
{
    (void)stream;
    return cudaMalloc(pointer, size);
}
SAME(cuMemAllocAsync, cudaMallocAsync);

static int allocate_shared(void **pointer, size_t size, int pinned)
{
    int error = pointer == NULL || size == 0 ? INVALID_VALUE : allocate(pointer, size, PAGE);
    if (error) return done(error);
    struct shared *one = malloc(sizeof *one);
    if (mmap(*pointer, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != *pointer)
        refuse("the host has other memory at %p, where the device has managed memory", *pointer);
    hold();
    *one = (struct shared){*pointer, size, pinned, all_shared};
    all_shared = one;
    let_go();
    return done(SUCCESS);
}

EXPORT int cudaMallocManaged(void **pointer, size_t size, unsigned flags) { return (void)flags, allocate_shared(pointer, size, 0); }
SAME(cuMemAllocManaged, cudaMallocManaged);

EXPORT int cudaHostAlloc(void **pointer, size_t size, unsigned flags) { return (void)flags, allocate_shared(pointer, size, 1); }
SAME(cuMemHostAlloc, cudaHostAlloc);

EXPORT int cudaMallocHost(void **pointer, size_t size) { return allocate_shared(pointer, size, 1); }
SAME(cuMemAllocHost_v2, cudaMallocHost);

EXPORT int cudaHostGetDevicePointer(void **on_the_device, void *host, unsigned flags)
{
    (void)flags;
    *on_the_device = host;
    return done(is_shared(host) ? SUCCESS : INVALID_VALUE);
}
SAME(cuMemHostGetDevicePointer_v2, cudaHostGetDevicePointer);

EXPORT int cudaFree(void *pointer)
{
    if (pointer == NULL) return done(SUCCESS);
    hold();
    int error = (int)ask((struct message){FREE, 0, {(uint64_t)pointer}}, NULL, NULL, 0).what;
    struct shared **link = shared_at(pointer), *one = *link;
    if (!error && one != NULL) {
        munmap(one->start, one->size);
        *link = one->next;
        free(one);
    }
    let_go();
    return done(error);
}
SAME(cuMemFree_v2, cudaFree);
SAME(cudaFreeHost, cudaFree);
SAME(cuMemFreeHost, cudaFree);

EXPORT int cudaFreeAsync(void *pointer, struct stream *stream)
{
    (void)stream;
    return cudaFree(pointer);
}
SAME(cuMemFreeAsync, cudaFreeAsync);

EXPORT int cudaDeviceGetDefaultMemPool(void **pool, int number)
{
    static char only;
    *pool = &only;
    return done(number ? INVALID_DEVICE : SUCCESS);
}
SAME(cudaDeviceGetMemPool, cudaDeviceGetDefaultMemPool);

EXPORT int cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(pointer, *pitch * height);
}

EXPORT int cudaMemGetInfo(size_t *unused, size_t *all)
{
    *unused = *all = device()->memory;
    return done(SUCCESS);
}
SAME(cuMemGetInfo_v2, cudaMemGetInfo);

struct pointer_attributes {
    int type, device;
    void *on_device, *on_host;
};

EXPORT int cudaPointerGetAttributes(struct pointer_attributes *attributes, const void *pointer)
{
    int kind = kind_of(pointer);
    *attributes = (struct pointer_attributes){
        kind, kind == ORDINARY ? -2 : 0, kind == ORDINARY ? NULL : (void *)pointer, kind == OF_THE_DEVICE ? NULL : (void *)pointer};
    return done(SUCCESS);
}

// ---- copies
int copy(void *to, const void *from, size_t size)
{
    if (size == 0) return SUCCESS;
    int reads = on_device(from), writes = on_device(to);
    uint64_t first = (uint64_t)to, second = (uint64_t)from;
    if (reads && writes) return (int)ask((struct message){COPY, 0, {first, second, size}}, NULL, NULL, 0).what;
    if (writes) return (int)ask((struct message){WRITE, size, {first}}, from, NULL, 0).what;
    if (reads) return (int)ask((struct message){READ, 0, {second, size}}, NULL, to, size).what;
    memmove(to, from, size);
    return SUCCESS;
}

int fill(void *to, unsigned value, size_t width, size_t count)
{
    if (on_device(to)) return (int)ask((struct message){FILL, 0, {(uint64_t)to, value, width, count}}, NULL, NULL, 0).what;
    for (size_t i = 0; i < count; ++i) memcpy((char *)to + i * width, &value, width);
    return SUCCESS;
}

int run(const struct launch *launch)
{
    const struct function *function = launch->function;
    hold();
    for (struct shared *one = all_shared; one != NULL; one = one->next)
        ask((struct message){WRITE, one->size, {(uint64_t)one->start}}, one->start, NULL, 0);
    struct extent grid = launch->grid, block = launch->block, cluster = launch->cluster;
    static const size_t MOST_PRINTED = 1 << 20;
    char *printed = calloc(1, MOST_PRINTED);
    struct message answer =
        ask((struct message){LAUNCH,
                             function->bytes,
                             {function->id, grid.x, grid.y, grid.z, block.x, block.y, block.z, cluster.x, cluster.y, cluster.z,
                              launch->shared, (uint64_t)launch->cooperative}},
            launch->parameters, printed, MOST_PRINTED - 1);
    fputs(printed, stdout);
    free(printed);
    for (struct shared *one = all_shared; one != NULL; one = one->next)
        ask((struct message){READ, 0, {(uint64_t)one->start, one->size}}, NULL, one->start, one->size);
    let_go();
    return (int)answer.what;
}

EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, struct stream *stream)
{
    if (kind < 0 || kind > 4) return done(21);  // cudaErrorInvalidMemcpyDirection
    return done(enqueue(stream, (struct operation){.kind = COPIES, .to = to, .from = from, .size = size}));
}

EXPORT int cudaMemcpy(void *to, const void *from, size_t size, int kind) { return cudaMemcpyAsync(to, from, size, kind, NULL); }

EXPORT int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind,
                             struct stream *stream)
{
    int error = width > to_pitch || width > from_pitch ? 12 : SUCCESS;  // cudaErrorInvalidPitchValue
    for (size_t row = 0; row < height && !error; ++row)
        error = cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
    return done(error);
}

EXPORT int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind)
{ return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, NULL); }

EXPORT int cuMemcpyAsync(void *to, const void *from, size_t size, struct stream *stream)
{ return cudaMemcpyAsync(to, from, size, 4, stream); }
SAME(cuMemcpyHtoDAsync_v2, cuMemcpyAsync);
SAME(cuMemcpyDtoHAsync_v2, cuMemcpyAsync);
SAME(cuMemcpyDtoDAsync_v2, cuMemcpyAsync);

EXPORT int cuMemcpy(void *to, const void *from, size_t size) { return cudaMemcpyAsync(to, from, size, 4, NULL); }
SAME(cuMemcpyHtoD_v2, cuMemcpy);
SAME(cuMemcpyDtoH_v2, cuMemcpy);
SAME(cuMemcpyDtoD_v2, cuMemcpy);

static int fills(void *to, unsigned value, size_t width, size_t count, struct stream *stream)
{ return done(enqueue(stream, (struct operation){.kind = FILLS, .to = to, .value = value, .size = width, .count = count})); }

EXPORT int cudaMemsetAsync(void *to, int value, size_t count, struct stream *stream) { return fills(to, (uint8_t)value, 1, count, stream); }
EXPORT int cudaMemset(void *to, int value, size_t count) { return fills(to, (uint8_t)value, 1, count, NULL); }
EXPORT int cuMemsetD8Async(void *to, uint8_t value, size_t count, struct stream *stream) { return fills(to, value, 1, count, stream); }
EXPORT int cuMemsetD8_v2(void *to, uint8_t value, size_t count) { return fills(to, value, 1, count, NULL); }
EXPORT int cuMemsetD16Async(void *to, uint16_t value, size_t count, struct stream *stream) { return fills(to, value, 2, count, stream); }
EXPORT int cuMemsetD16_v2(void *to, uint16_t value, size_t count) { return fills(to, value, 2, count, NULL); }
EXPORT int cuMemsetD32Async(void *to, unsigned value, size_t count, struct stream *stream) { return fills(to, value, 4, count, stream); }
EXPORT int cuMemsetD32_v2(void *to, unsigned value, size_t count) { return fills(to, value, 4, count, NULL); }

EXPORT int cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, struct stream *stream)
{
    int error = SUCCESS;
    for (size_t row = 0; row < height && !error; ++row) error = cudaMemsetAsync((char *)to + row * pitch, value, width, stream);
    return done(error);
}
EXPORT int cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{ return cudaMemset2DAsync(to, pitch, value, width, height, NULL); }

// Hints about managed memory, and about ordinary memory that copies use. A kernel does not reach the latter.
EXPORT int cudaMemPrefetchAsync(void) { return done(SUCCESS); }
SAME(cudaHostRegister, cudaMemPrefetchAsync);
SAME(cudaHostUnregister, cudaMemPrefetchAsync);
SAME(cudaMemPoolSetAttribute, cudaMemPrefetchAsync);
SAME(cudaMemAdvise, cudaMemPrefetchAsync);
