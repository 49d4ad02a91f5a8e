/* SPDX-License-Identifier: Apache-2.0
 *
 * The C reader of the contract. resolve() follows zoo/contract/resolve.py step by step and word by word; what docs/how_it_works.md
 * says of a call holds here too. Compiles as C11 and as C++17 and links nothing but libc (and libdl, where that is apart).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "zoo.h"
#include "zoo_table.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
#define THREAD_LOCAL thread_local
#else
#define THREAD_LOCAL _Thread_local
#endif

static_assert(sizeof(void *) == 8, "CUDA is for 64-bit machines");
static_assert(sizeof(DLDataType) == 4 && sizeof(DLDevice) == 8 && sizeof(DLTensor) == 48, "DLPack");
static_assert(offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40, "DLPack");
static_assert(sizeof(zoo_argument) == 24 && sizeof(zoo_plan_shape) == 56, "the ABI of zoo.h");

/* ---- errors: a thread's last message, put together piece by piece ---- */

static THREAD_LOCAL struct {
    char text[4096];
    size_t length;
    int driver_status;
} last_error;

__attribute__((format(printf, 1, 0))) static void say_list(const char *format, va_list pieces)
{
    size_t room = sizeof last_error.text - last_error.length;
    int wanted = vsnprintf(last_error.text + last_error.length, room, format, pieces);
    last_error.length += wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room - 1;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list pieces;
    va_start(pieces, format);
    say_list(format, pieces);
    va_end(pieces);
}

static void begin_words(void)
{
    last_error.length = 0;
    last_error.text[0] = '\0';
    last_error.driver_status = 0;
}

__attribute__((format(printf, 2, 3))) static zoo_status fail(zoo_status status, const char *format, ...)
{
    va_list pieces;
    begin_words();
    va_start(pieces, format);
    say_list(format, pieces);
    va_end(pieces);
    return status;
}

/* As `fail`, after the kernel's name; more may be said afterwards. */
__attribute__((format(printf, 3, 4))) static zoo_status refuse(const zoo_kernel *kernel, zoo_status status, const char *format, ...)
{
    va_list pieces;
    begin_words();
    say("%s: ", kernel->name);
    va_start(pieces, format);
    say_list(format, pieces);
    va_end(pieces);
    return status;
}

static void say_tuple(const int64_t *numbers, int count)
{
    say("(");
    for (int index = 0; index < count; index++) say(index ? ", %lld" : "%lld", (long long)numbers[index]);
    say(")");
}

static void say_either(const char *const *names, int count)
{
    for (int index = 0; index < count; index++) say("%s%s", index == 0 ? "" : index + 1 < count ? ", " : " or ", names[index]);
}

/* The shortest digits that read back as the same number, laid out as Python does. */
static void say_number(double number)
{
    char text[64], digits[20];
    if (number != number) {
        say("nan");
        return;
    }
    if (number - number != 0) {
        say(number < 0 ? "-inf" : "inf");
        return;
    }
    int precision = 0;
    do snprintf(text, sizeof text, "%.*e", precision, number);
    while (strtod(text, NULL) != number && ++precision < 17);
    int count = 0, exponent = atoi(strchr(text, 'e') + 1);
    for (const char *at = text; *at != 'e'; at++) /* whatever the locale puts between them */
        if (*at >= '0' && *at <= '9') digits[count++] = *at;
    while (count > 1 && digits[count - 1] == '0') count--;
    digits[count] = '\0';
    if (text[0] == '-') say("-");
    if (exponent < -4 || exponent >= 16)
        say(count > 1 ? "%c.%se%c%02d" : "%c%se%c%02d", digits[0], digits + 1, exponent < 0 ? '-' : '+',
            exponent < 0 ? -exponent : exponent);
    else if (exponent < 0) say("0.%.*s%s", -exponent - 1, "0000", digits);
    else if (count <= exponent + 1) say("%s%.*s.0", digits, exponent + 1 - count, "0000000000000000");
    else say("%.*s.%s", exponent + 1, digits, digits + exponent + 1);
}

/* ---- element types, with DLPack's code, bits and lanes ---- */

static const struct {
    const char *name;
    int bytes;
    int code, bits, lanes;
    bool carried_by_bytes;
} dtypes[] = {
#define DTYPE(name, bytes, code, bits, lanes, carried_by_bytes) {name, bytes, code, bits, lanes, carried_by_bytes},
    ZOO_DTYPES(DTYPE)
#undef DTYPE
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

static int dtype_of_name(const char *name)
{
    for (int index = 0; index < DTYPE_COUNT; index++)
        if (!strcmp(dtypes[index].name, name)) return index;
    return -1;
}

static int dtype_of_dlpack(DLDataType type)
{
    for (int index = 0; index < DTYPE_COUNT; index++)
        if (dtypes[index].code == type.code && dtypes[index].bits == type.bits && dtypes[index].lanes == type.lanes) return index;
    return -1;
}

enum { ON_CUDA = 2, ON_CUDA_MANAGED = 13 }; /* DLDeviceType */

/* ---- SHA-256 (FIPS 180-4) ---- */

static uint32_t rotate(uint32_t word, int by) { return word >> by | word << (32 - by); }

static void sha256_block(uint32_t state[8], const unsigned char *block)
{
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
        0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
        0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
        0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
        0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
        0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t words[64], s[8];
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t early = rotate(words[i - 15], 7) ^ rotate(words[i - 15], 18) ^ words[i - 15] >> 3;
        uint32_t late = rotate(words[i - 2], 17) ^ rotate(words[i - 2], 19) ^ words[i - 2] >> 10;
        words[i] = words[i - 16] + early + words[i - 7] + late;
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t first = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + choice + constants[i] + words[i];
        uint32_t second = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

static void sha256(const unsigned char *data, size_t bytes, unsigned char digest[32])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char tail[128] = {0};
    size_t whole = bytes / 64 * 64, rest = bytes - whole, end = rest < 56 ? 64 : 128;
    for (size_t at = 0; at < whole; at += 64) sha256_block(state, data + at);
    memcpy(tail, data + whole, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++) tail[end - 1 - (size_t)i] = (unsigned char)((uint64_t)bytes * 8 >> (8 * i));
    for (size_t at = 0; at < end; at += 64) sha256_block(state, tail + at);
    for (int i = 0; i < 32; i++) digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- the driver ---- */

typedef struct {
    int id;
    char padding[4];
    union {
        unsigned dimensions[3];
        int flag;
        char padding[64];
    } value;
} launch_attribute;
typedef struct {
    unsigned grid[3], threads[3], shared;
    void *stream;
    launch_attribute *attributes;
    unsigned attribute_count;
} launch_configuration;
static_assert(sizeof(launch_attribute) == 72, "CUlaunchAttribute");
static_assert(sizeof(launch_configuration) == 56, "CUlaunchConfig");

enum {
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    CAPTURE_IMPLICIT = 906, /* CUresult */
    CLOCK = 13,
    MULTIPROCESSORS = 16,
    MEMORY_CLOCK = 36,
    MEMORY_BITS = 37,
    MAJOR = 75,
    MINOR = 76,
    SHARED_OPT_IN = 97, /* CUdevice_attribute */
    STATIC_SHARED = 1,
    DYNAMIC_SHARED = 8,
    WIDE_CLUSTER = 14, /* CUfunction_attribute */
    CLUSTER_DIMENSION = 4,
    PROGRAMMATIC_SERIALIZATION = 6, /* CUlaunchAttributeID */
    RELAXED = 2,                    /* CUstreamCaptureMode */
    PORTABLE_SHARED = 48 * 1024
};

/* name in `driver`, symbol in libcuda, parameters; all of them are there since CUDA 12.4 */
#define DRIVER_FUNCTIONS(function) \
    function(initialise, "cuInit", (unsigned)) \
    function(error_name, "cuGetErrorName", (int, const char **)) \
    function(error_words, "cuGetErrorString", (int, const char **)) \
    function(device_count, "cuDeviceGetCount", (int *)) \
    function(device_get, "cuDeviceGet", (int *, int)) \
    function(device_name, "cuDeviceGetName", (char *, int, int)) \
    function(device_attribute, "cuDeviceGetAttribute", (int *, int, int)) \
    function(context_retain, "cuDevicePrimaryCtxRetain", (void **, int)) \
    function(context_release, "cuDevicePrimaryCtxRelease_v2", (int)) \
    function(context_current, "cuCtxGetCurrent", (void **)) \
    function(context_push, "cuCtxPushCurrent_v2", (void *)) \
    function(context_pop, "cuCtxPopCurrent_v2", (void **)) \
    function(library_load, "cuLibraryLoadData", (void **, const void *, void *, void **, unsigned, void *, void **, unsigned)) \
    function(library_unload, "cuLibraryUnload", (void *)) \
    function(library_kernel, "cuLibraryGetKernel", (void **, void *, const char *)) \
    function(kernel_function, "cuKernelGetFunction", (void **, void *)) \
    function(function_get, "cuFuncGetAttribute", (int *, int, void *)) \
    function(function_set, "cuFuncSetAttribute", (void *, int, int)) \
    function(function_load, "cuFuncLoad", (void *)) \
    function(stream_capturing, "cuStreamIsCapturing", (void *, int *)) \
    function(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int *)) \
    function(encode_map, "cuTensorMapEncodeTiled", \
             (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int)) \
    function(launch, "cuLaunchKernelEx", (const launch_configuration *, void *, void **, void **))

/* Guarded by `process_lock` until the first device is open, unchanged afterwards. */
static struct {
    void *library;
    pid_t process; /* the one that initialised it, or 0; read without the lock as well */
#define DECLARE(name, symbol, parameters) int (*name) parameters;
    DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
} driver;

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static void **loaded_libraries; /* CUlibrary of each cubin, once for all devices; guarded by process_lock */
static int open_devices;

typedef struct {
    zoo_device *self;  /* its handle */
    bool without_gpu;  /* by zoo_open_arch: there is no driver to ask */
    int ordinal, cuda; /* CUdevice */
    int major, minor, multiprocessors, shared_memory;
    char name[128];
    void *context;
    void **functions;    /* CUfunction of each variant, NULL until loaded; written under process_lock, read without it */
    int64_t **numbers;   /* of each variant, in the order of its table; NULL without a GPU, where those of the table hold */
    char *refused_costs; /* why that file is refused, in words; NULL where it is not */
} device_state;

static zoo_status fail_forked(void)
{
    zoo_status status = fail(ZOO_FORK_ERROR,
                             "this process was forked after CUDA was initialised, and the driver does not survive a fork; "
                             "fork before the first use of a GPU, or start the child anew");
    last_error.driver_status = NOT_INITIALIZED;
    return status;
}

static zoo_status fail_without_gpu(const device_state *device)
{
    return fail(ZOO_DRIVER_ERROR, "the device was opened for %s without a GPU, so nothing can be loaded or launched; zoo_open opens a GPU",
                device->name);
}

static pid_t driver_process(void) { return __atomic_load_n(&driver.process, __ATOMIC_ACQUIRE); }

/* A driver's failure while doing `what`, which takes a printf format. */
__attribute__((format(printf, 2, 3))) static zoo_status fail_driver(int result, const char *what, ...)
{
    const char *name = NULL, *words = NULL;
    va_list pieces;
    if (result == NOT_INITIALIZED && driver_process() && driver_process() != getpid()) return fail_forked();
    begin_words();
    va_start(pieces, what);
    say_list(what, pieces);
    va_end(pieces);
    if (driver.error_name(result, &name) || driver.error_words(result, &words) || !name || !words) say(": status %d", result);
    else say(": %s (%d): %s", name, result, words);
    last_error.driver_status = result;
    return ZOO_DRIVER_ERROR;
}

static zoo_status open_driver(void)
{
    if (driver_process()) return driver_process() == getpid() ? ZOO_OK : fail_forked();
    if (!driver.library) driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver.library)
        return fail(ZOO_DRIVER_ERROR,
                    "no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver, or in a container start it with "
                    "GPU support (%s)",
                    dlerror());
#define FIND(name, symbol, parameters) \
    { \
        void *found = dlsym(driver.library, symbol); \
        if (!found) return fail(ZOO_DRIVER_ERROR, "the CUDA driver is too old: it has no %s; install release 580 or later", symbol); \
        memcpy(&driver.name, &found, sizeof found); \
    }
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    int result = driver.initialise(0);
    if (result == NO_DEVICE) {
        fail(ZOO_DRIVER_ERROR, "the CUDA driver is installed but sees no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi");
        last_error.driver_status = result;
        return ZOO_DRIVER_ERROR;
    }
    if (result) return fail_driver(result, "the CUDA driver did not initialise");
    __atomic_store_n(&driver.process, getpid(), __ATOMIC_RELEASE);
    return ZOO_OK;
}

/* Makes the device's context current for a while; `*pushed` says whether that took anything. */
static zoo_status enter_context(const device_state *device, bool *pushed)
{
    void *current = NULL;
    int result = driver.context_current(&current);
    *pushed = false;
    if (!result && current == device->context) return ZOO_OK;
    if (!result) result = driver.context_push(device->context);
    if (result) return fail_driver(result, "making a context current");
    *pushed = true;
    return ZOO_OK;
}

/* Gives back the caller's. `status` is what came of the work in between, and is returned unless that went well and this does not. */
static zoo_status leave_context(bool pushed, zoo_status status)
{
    void *popped;
    int result = pushed ? driver.context_pop(&popped) : 0;
    return result && !status ? fail_driver(result, "making the caller's context current again") : status;
}

/* ---- handles ----
 *
 * What zoo.h calls a zoo_device * or a zoo_plan * is a number and no address: a place in a table, and how often that place was
 * taken. A handle that was closed, or that never was one, is told from a live one without a look at memory that may be gone.
 * To look one up takes no lock, since places never move. */

enum {
    PLACE_BITS = 24,
    FIRST_BLOCK_BITS = 6,
    BLOCKS = PLACE_BITS - FIRST_BLOCK_BITS,
    MOST_PLACES = (1 << PLACE_BITS) - (1 << FIRST_BLOCK_BITS)
};
typedef enum { DEVICE_HANDLE = 1, PLAN_HANDLE = 2, KIND_BITS = 2 } handle_kind;

typedef struct {
    uint64_t handle; /* of the object that lives here, or 0 */
    void *object;
    uint64_t taken; /* so often */
    uint32_t next;  /* place that is free, plus 1 */
} handle_place;

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static handle_place *handle_blocks[BLOCKS]; /* of 64, 128, 256... places */
static uint32_t places_used, free_place;    /* the latter plus 1 */

/* The block of a place, and where in it. */
static int block_of(uint32_t place, uint32_t *within)
{
    uint32_t number = place + (1u << FIRST_BLOCK_BITS);
    int bits = 31 - __builtin_clz(number);
    *within = number - (1u << bits);
    return bits - FIRST_BLOCK_BITS;
}

static handle_place *find_place(uint64_t handle)
{
    uint32_t place = (uint32_t)(handle >> KIND_BITS) & ((1u << PLACE_BITS) - 1), within;
    if (place >= MOST_PLACES) return NULL;
    int block = block_of(place, &within);
    handle_place *places = __atomic_load_n(&handle_blocks[block], __ATOMIC_ACQUIRE);
    return places ? &places[within] : NULL;
}

/* What a handle names, or NULL. */
static void *find_object(const void *handle, handle_kind kind)
{
    uint64_t value = (uint64_t)(uintptr_t)handle;
    if ((value & ((1u << KIND_BITS) - 1)) != (uint64_t)kind) return NULL;
    const handle_place *place = find_place(value);
    if (!place || __atomic_load_n(&place->handle, __ATOMIC_ACQUIRE) != value) return NULL;
    return __atomic_load_n(&place->object, __ATOMIC_RELAXED);
}

/* A handle for an object; NULL where memory or places ran out. */
static void *add_object(void *object, handle_kind kind)
{
    uint64_t value = 0;
    uint32_t number = 0, within;
    handle_place *place = NULL;
    pthread_mutex_lock(&handles_lock);
    if (free_place) {
        number = free_place - 1;
        place = find_place((uint64_t)number << KIND_BITS);
        free_place = place->next;
    } else if (places_used < MOST_PLACES) {
        int block = block_of(places_used, &within);
        if (!handle_blocks[block]) {
            handle_place *places = (handle_place *)calloc((size_t)1 << (FIRST_BLOCK_BITS + block), sizeof *places);
            __atomic_store_n(&handle_blocks[block], places, __ATOMIC_RELEASE);
        }
        if (handle_blocks[block]) {
            place = &handle_blocks[block][within];
            number = places_used++;
        }
    }
    if (place) {
        value = ++place->taken << (PLACE_BITS + KIND_BITS) | (uint64_t)number << KIND_BITS | (uint64_t)kind;
        __atomic_store_n(&place->object, object, __ATOMIC_RELAXED);
        __atomic_store_n(&place->handle, value, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&handles_lock);
    return (void *)(uintptr_t)value;
}

/* From here on the handle names nothing. Returns what it named; NULL to all but one of those who close it at once. */
static void *remove_object(const void *handle, handle_kind kind)
{
    pthread_mutex_lock(&handles_lock);
    void *object = find_object(handle, kind);
    if (object) {
        handle_place *place = find_place((uint64_t)(uintptr_t)handle);
        __atomic_store_n(&place->handle, 0, __ATOMIC_RELEASE);
        place->next = free_place;
        free_place = ((uint32_t)((uint64_t)(uintptr_t)handle >> KIND_BITS) & ((1u << PLACE_BITS) - 1)) + 1;
    }
    pthread_mutex_unlock(&handles_lock);
    return object;
}

/* ---- forks ---- */

/* Of a child: the driver was in use when it was forked, or a lock was held by a thread that the child has not. No function of it
   takes a lock or asks the driver. */
static bool forked;

static void after_fork(void)
{
    bool process_free = !pthread_mutex_trylock(&process_lock), handles_free = !pthread_mutex_trylock(&handles_lock);
    forked |= driver_process() || !process_free || !handles_free;
    if (handles_free) pthread_mutex_unlock(&handles_lock);
    if (process_free) pthread_mutex_unlock(&process_lock);
}

static int watching; /* what pthread_atfork said */
static void watch_forks(void) { watching = pthread_atfork(NULL, NULL, after_fork); }

static zoo_status fail_device(const zoo_device *handle)
{
    if (forked) return fail_forked();
    if (!handle) return fail(ZOO_ARGUMENT_ERROR, "the device is NULL; pass one that zoo_open gave");
    return fail(ZOO_ARGUMENT_ERROR, "the device was closed, or is none that zoo_open gave");
}

static zoo_status find_device(const zoo_device *handle, device_state **device)
{
    *device = forked ? NULL : (device_state *)find_object(handle, DEVICE_HANDLE);
    return *device ? ZOO_OK : fail_device(handle);
}

/* ---- expressions ---- */

/* The state of one call: the names and values that expressions read, and what the caller gave. */
typedef struct {
    bool present;
    bool expected; /* not made yet, its bytes being asked for or those of an array beside it */
    bool typed;    /* then: its dtype is given */
    uint64_t address;
    int dtype; /* index into `dtypes`; -1 for one that zoo has no name for */
    DLDataType given_dtype;
    int device; /* -1: memory of the host */
    int dimensions;
    const int64_t *shape, *given_strides;
    int64_t strides[ZOO_MOST_DIMENSIONS];
    bool empty;
    const zoo_form *form;
} array_state;

typedef struct {
    int64_t address, bytes, rows, pitch, row;
} byte_span;

typedef struct {
    const zoo_kernel *kernel;
    const device_state *device;
    int64_t values[ZOO_MOST_SYMBOLS];
    bool known[ZOO_MOST_SYMBOLS];
    bool is_stride[ZOO_MOST_SYMBOLS];
    uint16_t order[ZOO_MOST_SYMBOLS]; /* in which symbols came to be known, for messages */
    int order_count;
    array_state arrays[ZOO_MOST_ARGUMENTS];
    double numbers[ZOO_MOST_ARGUMENTS];
    int chosen_dtypes[ZOO_MOST_ARGUMENTS]; /* index into the argument's own list */
    int choices[ZOO_MOST_OPTIONS];
    const char *pinned;
    int64_t limit; /* of multiprocessors; as many as the device has where the call gives none */
    int asked;     /* the argument whose bytes are asked for, or -1 */
} call_state;

static void set_value(call_state *call, int slot, int64_t value)
{
    if (!call->known[slot]) call->order[call->order_count++] = (uint16_t)slot;
    call->known[slot] = true;
    call->values[slot] = value;
}

static bool floor_divide(int64_t a, int64_t b, int64_t *result)
{
    if (b == -1) return !__builtin_sub_overflow((int64_t)0, a, result);
    *result = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return true;
}

static bool ceil_divide(int64_t a, int64_t b, int64_t *result)
{
    if (b == -1) return !__builtin_sub_overflow((int64_t)0, a, result);
    *result = a / b + (a % b != 0 && (a < 0) == (b < 0));
    return true;
}

/* One of the opcodes that take two values; false where the result does not fit 64 bits. The divisor is not zero. */
static bool compute(uint32_t opcode, int64_t a, int64_t b, int64_t *result)
{
    switch (opcode) {
    case ZOO_DO_ADD: return !__builtin_add_overflow(a, b, result);
    case ZOO_DO_SUBTRACT: return !__builtin_sub_overflow(a, b, result);
    case ZOO_DO_MULTIPLY: return !__builtin_mul_overflow(a, b, result);
    case ZOO_DO_FLOOR_DIVIDE: return floor_divide(a, b, result);
    case ZOO_DO_MODULO: *result = b == -1 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); return true;
    case ZOO_DO_EQUAL: *result = a == b; return true;
    case ZOO_DO_NOT_EQUAL: *result = a != b; return true;
    case ZOO_DO_LESS: *result = a < b; return true;
    case ZOO_DO_LESS_EQUAL: *result = a <= b; return true;
    case ZOO_DO_GREATER: *result = a > b; return true;
    case ZOO_DO_GREATER_EQUAL: *result = a >= b; return true;
    case ZOO_DO_MINIMUM: *result = a < b ? a : b; return true;
    case ZOO_DO_MAXIMUM: *result = a > b ? a : b; return true;
    case ZOO_DO_CEIL_DIV: return ceil_divide(a, b, result);
    default: /* ZOO_DO_ROUND_UP; by -1 everything is a multiple, though the quotient may not fit */
        if (b == -1) {
            *result = a;
            return true;
        }
        ceil_divide(a, b, result);
        return !__builtin_mul_overflow(*result, b, result);
    }
}

typedef enum { HAS_VALUE, NAME_WITHOUT_VALUE, DIVIDES_BY_ZERO, TOO_LARGE } outcome;

/* The value of an expression; or why it has none, and then perhaps the slot of the name that has none. */
__attribute__((always_inline)) static inline outcome compute_expression(const call_state *call, const zoo_expression *expression,
                                                                        int64_t *result)
{
    int64_t stack[ZOO_MOST_STACK];
    int top = 0; /* how many values are on it */
    for (int position = 0; position < expression->length;) {
        const zoo_instruction *instruction = &expression->code[position++];
        int64_t operand = instruction->operand;
        switch (instruction->opcode) {
        case ZOO_DO_CONSTANT: stack[top++] = operand; break;
        case ZOO_DO_LOAD:
            if (!call->known[operand]) {
                *result = operand;
                return NAME_WITHOUT_VALUE;
            }
            stack[top++] = call->values[operand];
            break;
        case ZOO_DO_NEGATE:
            if (__builtin_sub_overflow((int64_t)0, stack[top - 1], &stack[top - 1])) return TOO_LARGE;
            break;
        case ZOO_DO_NOT: stack[top - 1] = stack[top - 1] == 0; break;
        case ZOO_DO_TRUTH: stack[top - 1] = stack[top - 1] != 0; break;
        case ZOO_DO_JUMP: position = (int)operand; break;
        case ZOO_DO_JUMP_IF_ZERO:
            if (stack[--top] == 0) position = (int)operand;
            break;
        default: {
            int64_t right = stack[--top], left = stack[top - 1];
            bool divides = instruction->opcode == ZOO_DO_FLOOR_DIVIDE || instruction->opcode == ZOO_DO_MODULO ||
                           instruction->opcode == ZOO_DO_CEIL_DIV || instruction->opcode == ZOO_DO_ROUND_UP;
            if (divides && right == 0) return DIVIDES_BY_ZERO;
            if (!compute(instruction->opcode, left, right, &stack[top - 1])) return TOO_LARGE;
        }
        }
    }
    *result = stack[0];
    return HAS_VALUE;
}

static zoo_status evaluate(const call_state *call, int index, int64_t *result)
{
    const zoo_expression *expression = &call->kernel->expressions[index];
    switch (compute_expression(call, expression, result)) {
    case HAS_VALUE: return ZOO_OK;
    case NAME_WITHOUT_VALUE:
        return refuse(call->kernel, ZOO_CONSTRAINT_ERROR, "'%s': nothing is named '%s'", expression->text, call->kernel->names[*result]);
    case DIVIDES_BY_ZERO: return refuse(call->kernel, ZOO_CONSTRAINT_ERROR, "'%s' divides by zero", expression->text);
    default: return refuse(call->kernel, ZOO_CONSTRAINT_ERROR, "'%s' does not fit 64 bits", expression->text);
    }
}

/* Where bytes are asked for, what depends on arrays that are not made yet has no value so far. */
static bool is_open(const call_state *call, int index)
{
    int64_t value;
    return call->asked >= 0 && compute_expression(call, &call->kernel->expressions[index], &value) == NAME_WITHOUT_VALUE;
}

static zoo_status evaluate_all(const call_state *call, const uint16_t *indices, int count, int64_t *results)
{
    zoo_status status = ZOO_OK;
    for (int index = 0; index < count && !status; index++) status = evaluate(call, indices[index], &results[index]);
    return status;
}

static void say_texts(const zoo_kernel *kernel, const uint16_t *indices, int count)
{
    say("(");
    for (int index = 0; index < count; index++) say("%s%s", index ? ", " : "", kernel->expressions[indices[index]].text);
    say(")");
}

/* What a refusal of an array's shape ends with: the first clause of its argument's help. */
static void say_in_short(const char *help)
{
    int length = 0;
    while (help[length] && !(strchr(".;:", help[length]) && help[length + 1] == ' ')) length++;
    if (length) say("; %.*s", length, help);
}

/* ---- 1. names ---- */

static const zoo_argument *find_given(const zoo_argument *given, size_t count, const char *name)
{
    for (size_t index = 0; index < count; index++)
        if (!strcmp(given[index].name, name)) return &given[index];
    return NULL;
}

/* Refuses what could only be read through a null pointer or past an end. */
static zoo_status check_given(const zoo_kernel *kernel, const zoo_argument *given, size_t count, int asked)
{
    enum { MOST_GIVEN = ZOO_MOST_ARGUMENTS + ZOO_MOST_OPTIONS + 1 };
    if (count > MOST_GIVEN)
        return refuse(kernel, ZOO_ARGUMENT_ERROR, "a count of %zu arguments; no call has more than %d", count, MOST_GIVEN);
    if (count && !given) return refuse(kernel, ZOO_ARGUMENT_ERROR, "a count of %zu arguments, and the arguments are NULL", count);
    for (size_t index = 0; index < count; index++) {
        const zoo_argument *argument = &given[index];
        int kind;
        memcpy(&kind, &argument->kind, sizeof kind);
        if (!argument->name) return refuse(kernel, ZOO_ARGUMENT_ERROR, "the name of argument %zu of the call is NULL", index);
        if (kind < ZOO_TENSOR || kind > ZOO_CHOICE)
            return refuse(
                kernel, ZOO_ARGUMENT_ERROR,
                "%s: an argument of kind %d, which zoo.h has not; make arguments by zoo_tensor, zoo_integer, zoo_number and zoo_choice",
                argument->name, kind);
        const DLTensor *tensor = kind == ZOO_TENSOR ? argument->value.tensor : NULL;
        if (!tensor || (asked >= 0 && !strcmp(kernel->arguments[asked].name, argument->name))) continue;
        if (tensor->ndim > 0 && !tensor->shape)
            return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: its shape is NULL, and it has %d dimensions", argument->name, tensor->ndim);
        uint64_t address;
        if (__builtin_add_overflow((uint64_t)(uintptr_t)tensor->data, tensor->byte_offset, &address))
            return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: a byte_offset of %llu leads from 0x%llx past the end of all addresses",
                          argument->name, (unsigned long long)tensor->byte_offset, (unsigned long long)(uintptr_t)tensor->data);
    }
    return ZOO_OK;
}

static bool is_absent(const zoo_argument *argument)
{
    return !argument || (argument->kind == ZOO_TENSOR && !argument->value.tensor) ||
           (argument->kind == ZOO_CHOICE && !argument->value.choice);
}

static int argument_index(const zoo_kernel *kernel, const char *name)
{
    for (int index = 0; index < kernel->argument_count; index++)
        if (!strcmp(kernel->arguments[index].name, name)) return index;
    return -1;
}

static bool is_option(const zoo_kernel *kernel, const char *name)
{
    for (int index = 0; index < kernel->option_count; index++)
        if (!strcmp(kernel->options[index].name, name)) return true;
    return false;
}

static zoo_status check_kinds(const zoo_kernel *kernel, const zoo_argument *given, size_t count)
{
    static const char *const python[] = {"an array", "a int", "a float", "a str"};
    for (size_t index = 0; index < count; index++) {
        int which = argument_index(kernel, given[index].name);
        if (which < 0 || is_absent(&given[index])) continue;
        const zoo_argument_entry *argument = &kernel->arguments[which];
        if ((argument->forms != NULL) == (given[index].kind == ZOO_TENSOR)) continue;
        if (argument->forms)
            return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: expected an array in device memory, got %s", argument->name,
                          python[given[index].kind]);
        return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: expected a number (%s), got an array", argument->name, argument->dtypes[0]);
    }
    return ZOO_OK;
}

static void say_given(const zoo_argument *given)
{
    if (given->kind == ZOO_INTEGER) say("%lld", (long long)given->value.integer);
    else if (given->kind == ZOO_NUMBER) say_number(given->value.number);
    else say("%s", given->kind == ZOO_CHOICE ? given->value.choice : "an array");
}

static zoo_status take_scalar(call_state *call, int index, const zoo_argument *given)
{
    const zoo_argument_entry *argument = &call->kernel->arguments[index];
    zoo_argument value = zoo_choice(argument->name, "None");
    if (!is_absent(given)) value = *given;
    else if (argument->default_kind == ZOO_INTEGER_DEFAULT) value = zoo_integer(argument->name, argument->default_integer);
    else if (argument->default_kind == ZOO_NUMBER_DEFAULT) value = zoo_number(argument->name, argument->default_number);
    if (!strcmp(argument->dtypes[0], dtypes[ZOO_DTYPE_F32].name)) {
        double number = value.kind == ZOO_INTEGER ? (double)value.value.integer : value.kind == ZOO_NUMBER ? value.value.number : 0;
        /* half way between the largest f32 and the next power of two, which rounds to infinity */
        bool too_large = number - number == 0 && (number >= 0x1.ffffffp127 || number <= -0x1.ffffffp127);
        if (value.kind == ZOO_CHOICE || too_large) {
            refuse(call->kernel, ZOO_ARGUMENT_ERROR, "%s: expected a number that fits 32 bits, got ", argument->name);
            say_given(&value);
            return ZOO_ARGUMENT_ERROR;
        }
        call->numbers[index] = number;
        return ZOO_OK;
    }
    int bits = strcmp(argument->dtypes[0], dtypes[ZOO_DTYPE_I32].name) ? 64 : 32;
    bool fits = value.kind == ZOO_INTEGER && (bits == 64 || (value.value.integer >= INT32_MIN && value.value.integer <= INT32_MAX));
    if (!fits) {
        refuse(call->kernel, ZOO_ARGUMENT_ERROR, "%s: expected a whole number of %d bits, got ", argument->name, bits);
        say_given(&value);
        return ZOO_ARGUMENT_ERROR;
    }
    set_value(call, argument->slot, value.value.integer);
    return ZOO_OK;
}

static void take_array(array_state *array, const DLTensor *tensor)
{
    int kind = (int)tensor->device.device_type;
    array->present = true;
    array->address = tensor->data ? (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset : 0;
    array->given_dtype = tensor->dtype;
    array->dtype = dtype_of_dlpack(tensor->dtype);
    array->device = kind == ON_CUDA || kind == ON_CUDA_MANAGED ? tensor->device.device_id : -1;
    array->dimensions = tensor->ndim;
    array->shape = tensor->shape;
    array->given_strides = tensor->strides;
}

/* The array whose bytes are asked for, where the caller says more of it than its name: its dtype, or its shape and strides too. */
static void take_description(const call_state *call, array_state *array, const DLTensor *tensor)
{
    take_array(array, tensor);
    array->address = 0;
    array->device = call->device->ordinal;
    if (tensor->shape) return;
    array->present = false;
    array->expected = array->typed = true;
}

static zoo_status take_limit(call_state *call, const zoo_argument *given)
{
    int64_t most = call->device->multiprocessors, least = ZOO_LIMIT_PERSISTENT_CLUSTER;
    if (least > most) least = most;
    if (is_absent(given)) return ZOO_OK;
    if (given->kind != ZOO_INTEGER || given->value.integer < least || given->value.integer > most) {
        refuse(call->kernel, ZOO_ARGUMENT_ERROR, "multiprocessors: expected a whole number of %lld to %lld, got ", (long long)least,
               (long long)most);
        say_given(given);
        return ZOO_ARGUMENT_ERROR;
    }
    call->limit = given->value.integer;
    set_value(call, 0, call->limit);
    return ZOO_OK;
}

static zoo_status sort_arguments(call_state *call, const zoo_argument *given, size_t count)
{
    const zoo_kernel *kernel = call->kernel;
    for (size_t index = 0; index < count; index++) {
        const char *name = given[index].name;
        bool taken = argument_index(kernel, name) >= 0 || is_option(kernel, name);
        if (!taken && !strcmp(name, "variant") && given[index].kind == ZOO_CHOICE) {
            call->pinned = given[index].value.choice;
            continue;
        }
        if (!taken && !strcmp(name, "multiprocessors")) {
            zoo_status status = take_limit(call, &given[index]);
            if (status) return status;
            continue;
        }
        if (!taken) {
            refuse(kernel, ZOO_ARGUMENT_ERROR, "no argument is named '%s'; it takes ", name);
            for (int other = 0; other < kernel->argument_count; other++) say("%s%s", other ? ", " : "", kernel->arguments[other].name);
            for (int other = 0; other < kernel->option_count; other++)
                say("%s%s", other || kernel->argument_count ? ", " : "", kernel->options[other].name);
            return ZOO_ARGUMENT_ERROR;
        }
    }
    for (size_t index = 0; index < count; index++)
        if (find_given(given, count, given[index].name) != &given[index])
            return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: given twice", given[index].name);
    for (int index = 0; index < kernel->argument_count; index++) {
        const zoo_argument_entry *argument = &kernel->arguments[index];
        const zoo_argument *value = find_given(given, count, argument->name);
        bool scalar = !argument->forms, absent = is_absent(value) && argument->default_kind == ZOO_NO_DEFAULT;
        bool written = call->asked >= 0 && !argument->optional && argument->access != ZOO_ACCESS_READ;
        if (absent && !scalar && (index == call->asked || written)) call->arrays[index].expected = true;
        else if (absent && !argument->optional)
            return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: missing; %s", argument->name, argument->help);
        if (scalar) {
            zoo_status status = take_scalar(call, index, value);
            if (status) return status;
        } else if (!absent && index == call->asked) {
            take_description(call, &call->arrays[index], value->value.tensor);
        } else if (!absent) {
            take_array(&call->arrays[index], value->value.tensor);
        }
    }
    for (int index = 0; index < kernel->option_count; index++) {
        const zoo_option_entry *option = &kernel->options[index];
        const zoo_argument *value = find_given(given, count, option->name);
        call->choices[index] = is_absent(value) ? option->chosen : -1;
        for (int each = 0; each < option->count && !is_absent(value) && value->kind == ZOO_CHOICE; each++)
            if (!strcmp(option->values[each], value->value.choice)) call->choices[index] = each;
        if (call->choices[index] < 0) {
            refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: expected ", option->name);
            say_either(option->values, option->count);
            say(", got '");
            say_given(value);
            say("'");
            return ZOO_ARGUMENT_ERROR;
        }
    }
    return ZOO_OK;
}

/* ---- 2. arrays one by one ---- */

static zoo_status choose_dtype(call_state *call, int index)
{
    const zoo_argument_entry *argument = &call->kernel->arguments[index];
    array_state *array = &call->arrays[index];
    call->chosen_dtypes[index] = 0;
    if (!array->present && !array->typed) {
        array->dtype = dtype_of_name(argument->dtypes[0]);
        return ZOO_OK;
    }
    if (array->device < 0)
        return refuse(call->kernel, ZOO_ARGUMENT_ERROR, "%s: lies in host memory; copy it to the device first", argument->name);
    const char *given = array->dtype < 0 ? "" : dtypes[array->dtype].name;
    int carried = 0, only = 0, bytes = -1;
    for (int each = 0; each < argument->dtype_count; each++) {
        if (!strcmp(argument->dtypes[each], given)) {
            call->chosen_dtypes[index] = each;
            return ZOO_OK;
        }
        if (dtypes[dtype_of_name(argument->dtypes[each])].carried_by_bytes) {
            carried++;
            only = each;
        }
        if (!strcmp(argument->dtypes[each], dtypes[ZOO_DTYPE_U8].name)) bytes = each;
    }
    if (array->dtype == ZOO_DTYPE_U8 && carried == 1) {
        call->chosen_dtypes[index] = only;
        array->dtype = dtype_of_name(argument->dtypes[only]);
        return ZOO_OK;
    }
    if (bytes >= 0 && array->dtype >= 0 && dtypes[array->dtype].carried_by_bytes) {
        call->chosen_dtypes[index] = bytes;
        array->dtype = ZOO_DTYPE_U8;
        return ZOO_OK;
    }
    refuse(call->kernel, ZOO_ARGUMENT_ERROR, "%s: expected ", argument->name);
    say_either(argument->dtypes, argument->dtype_count);
    if (array->dtype >= 0) say(", got %s", given);
    else say(", got DLPack type (%d, %d, %d)", array->given_dtype.code, array->given_dtype.bits, array->given_dtype.lanes);
    if (array->dtype == ZOO_DTYPE_U8 && carried) say("; bytes could be either, so pass an array that says which");
    return ZOO_ARGUMENT_ERROR;
}

static zoo_status choose_form(call_state *call, int index)
{
    const zoo_argument_entry *argument = &call->kernel->arguments[index];
    for (int each = 0; each < argument->form_count; each++) {
        int64_t holds;
        zoo_status status = evaluate(call, argument->forms[each].when, &holds);
        if (status) return status;
        if (holds) {
            call->arrays[index].form = &argument->forms[each];
            return ZOO_OK;
        }
    }
    return refuse(call->kernel, ZOO_CONSTRAINT_ERROR, "%s: no form of it for these dtypes and options", argument->name);
}

/* Of arrays that are not made yet, which of several dtypes they will have is open; of the one asked for, its first says the bytes. */
static void forget_dtypes(call_state *call)
{
    for (int index = 0; index < call->kernel->argument_count; index++) {
        const zoo_argument_entry *argument = &call->kernel->arguments[index];
        if (!call->arrays[index].expected || call->arrays[index].typed || argument->dtype_count < 2) continue;
        if (index != call->asked) call->known[argument->slot + 1] = false;
        for (int each = 0; each < argument->dtype_count; each++) call->known[argument->slot + 2 + each] = false;
    }
}

static zoo_status set_flags_and_forms(call_state *call)
{
    const zoo_kernel *kernel = call->kernel;
    zoo_status status = ZOO_OK;
    for (int index = 0; index < kernel->option_count; index++)
        for (int each = 0; each < kernel->options[index].count; each++)
            set_value(call, kernel->options[index].slot + each, call->choices[index] == each);
    for (int index = 0; index < kernel->argument_count; index++) {
        const zoo_argument_entry *argument = &kernel->arguments[index];
        if (!argument->forms) continue;
        if ((status = choose_dtype(call, index))) return status;
        set_value(call, argument->slot, call->arrays[index].present || call->arrays[index].expected);
        set_value(call, argument->slot + 1, dtypes[call->arrays[index].dtype].bytes);
        for (int each = 0; each < argument->dtype_count; each++)
            set_value(call, argument->slot + 2 + each, call->chosen_dtypes[index] == each);
    }
    for (int index = 0; index < kernel->argument_count && !status; index++)
        if (call->arrays[index].present || call->arrays[index].expected) status = choose_form(call, index);
    if (call->asked >= 0) forget_dtypes(call);
    return status;
}

/* An extent or a stride that arrays still to be made will say. */
static bool will_be_bound(const call_state *call, int slot)
{
    for (int index = 0; index < call->kernel->argument_count; index++) {
        const zoo_form *form = call->arrays[index].form;
        for (int axis = 0; call->arrays[index].expected && axis < form->dimensions; axis++)
            if (call->kernel->expressions[form->shape[axis]].bare == slot ||
                (!form->contiguous && call->kernel->expressions[form->strides[axis]].bare == slot))
                return true;
    }
    return false;
}

/* Gives bare names their first value; 0 where there are none. */
static void bind(call_state *call, const uint16_t *indices, const int64_t *values, int count)
{
    for (int index = 0; index < count; index++) {
        int slot = call->kernel->expressions[indices[index]].bare;
        if (slot == ZOO_NONE || call->known[slot]) continue;
        if (values) set_value(call, slot, values[index]);
        else if (call->asked < 0 || !will_be_bound(call, slot)) set_value(call, slot, 0);
    }
}

/* Strides as given, or of a contiguous array; where those overflow, they do not matter: the extent is refused. */
static void given_strides(const array_state *array, int64_t *strides)
{
    int64_t step = 1;
    for (int axis = array->dimensions - 1; axis >= 0; axis--) {
        strides[axis] = array->given_strides ? array->given_strides[axis] : step;
        if (__builtin_mul_overflow(step, array->shape[axis] > 1 ? array->shape[axis] : 1, &step)) step = INT64_MAX;
    }
}

static zoo_status bind_array(call_state *call, int index)
{
    const zoo_kernel *kernel = call->kernel;
    const char *name = kernel->arguments[index].name;
    array_state *array = &call->arrays[index];
    const zoo_form *form = array->form;
    int64_t given[ZOO_MOST_DIMENSIONS];
    if (array->dimensions != form->dimensions) {
        refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: expected %d dimensions ", name, form->dimensions);
        say_texts(kernel, form->shape, form->dimensions);
        say(", got %d", array->dimensions);
        say_in_short(kernel->arguments[index].help);
        return ZOO_ARGUMENT_ERROR;
    }
    for (int axis = 0; axis < array->dimensions; axis++)
        if (array->shape[axis] < 0) {
            refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: a negative extent in ", name);
            say_tuple(array->shape, array->dimensions);
            return ZOO_ARGUMENT_ERROR;
        }
    given_strides(array, given);
    for (int axis = 0; axis < array->dimensions; axis++)
        if (given[axis] < 0) {
            refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: a negative stride in ", name);
            say_tuple(given, array->dimensions);
            return ZOO_ARGUMENT_ERROR;
        }
    array->empty = false;
    for (int axis = 0; axis < array->dimensions; axis++) array->empty |= array->shape[axis] == 0;
    if (array->address == 0 && !array->empty && call->asked < 0) return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: a null address", name);
    int64_t contiguous = 1, farthest = 0, reach, end;
    bool fits = array->address <= INT64_MAX;
    for (int axis = array->dimensions - 1; axis >= 0 && fits; axis--) {
        int64_t extent = array->shape[axis], stride = array->empty || extent <= 1 ? contiguous : given[axis];
        array->strides[axis] = stride;
        fits &= !__builtin_mul_overflow(stride, extent > 1 ? extent : 1, &contiguous);
        if (array->empty || !fits) continue;
        fits &= !__builtin_mul_overflow(extent - 1, stride, &reach) && !__builtin_add_overflow(farthest, reach, &farthest);
    }
    if (fits && !array->empty)
        fits = !__builtin_add_overflow(farthest, 1, &end) && !__builtin_mul_overflow(end, (int64_t)dtypes[array->dtype].bytes, &end) &&
               !__builtin_add_overflow(end, (int64_t)array->address, &end);
    if (!fits) {
        refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: an extent of ", name);
        say_tuple(array->shape, array->dimensions);
        say(" with such strides does not fit 64 bits");
        return ZOO_ARGUMENT_ERROR;
    }
    bind(call, form->shape, array->shape, form->dimensions);
    if (!form->contiguous) {
        int before = call->order_count;
        bind(call, form->strides, array->strides, form->dimensions);
        for (; before < call->order_count; before++) call->is_stride[call->order[before]] = true;
    }
    return ZOO_OK;
}

/* A symbol that only absent optional arguments would bind is 0. */
static void bind_absent(call_state *call)
{
    for (int index = 0; index < call->kernel->argument_count; index++) {
        const zoo_argument_entry *argument = &call->kernel->arguments[index];
        if (call->arrays[index].present || call->arrays[index].expected) continue;
        for (int each = 0; each < argument->form_count; each++) {
            bind(call, argument->forms[each].shape, NULL, argument->forms[each].dimensions);
            if (!argument->forms[each].contiguous) bind(call, argument->forms[each].strides, NULL, argument->forms[each].dimensions);
        }
    }
}

/* ---- 3. one device ---- */

static zoo_status check_device(const call_state *call)
{
    const zoo_kernel *kernel = call->kernel;
    int first = -1;
    for (int index = 0; index < kernel->argument_count; index++) {
        if (!call->arrays[index].present) continue;
        if (first < 0) first = index;
        if (call->arrays[index].device != call->arrays[first].device)
            return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: lies on device %d, %s on device %d", kernel->arguments[index].name,
                          call->arrays[index].device, kernel->arguments[first].name, call->arrays[first].device);
    }
    if (first >= 0 && call->arrays[first].device != call->device->ordinal)
        return refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: lies on device %d, and the call is for device %d", kernel->arguments[first].name,
                      call->arrays[first].device, call->device->ordinal);
    return ZOO_OK;
}

/* ---- 4. derived symbols and constraints; 5. shapes; 6. constraints that name strides ---- */

static zoo_status derive(call_state *call)
{
    int64_t value;
    for (int index = 0; index < call->kernel->derived_count; index++) {
        if (is_open(call, call->kernel->derived[index].expression)) continue;
        zoo_status status = evaluate(call, call->kernel->derived[index].expression, &value);
        if (status) return status;
        set_value(call, call->kernel->derived[index].slot, value);
    }
    return ZOO_OK;
}

static bool names_a_stride(const call_state *call, const zoo_expression *expression)
{
    for (int position = 0; position < expression->length; position++)
        if (expression->code[position].opcode == ZOO_DO_LOAD && call->is_stride[expression->code[position].operand]) return true;
    return false;
}

static zoo_status check_constraints(const call_state *call, bool of_strides)
{
    const zoo_kernel *kernel = call->kernel;
    int64_t value;
    for (int index = 0; index < kernel->constraint_count; index++) {
        const zoo_expression *expression = &kernel->expressions[kernel->constraints[index].expression];
        if (names_a_stride(call, expression) != of_strides || is_open(call, kernel->constraints[index].expression)) continue;
        zoo_status status = evaluate(call, kernel->constraints[index].expression, &value);
        if (status) return status;
        if (value) continue;
        bool said[ZOO_MOST_SYMBOLS] = {false}, any = false;
        refuse(kernel, ZOO_CONSTRAINT_ERROR, "%s (%s, with ", kernel->constraints[index].words, expression->text);
        for (int position = 0; position < expression->length; position++) {
            int64_t slot = expression->code[position].operand;
            if (expression->code[position].opcode != ZOO_DO_LOAD || said[slot] || !call->known[slot]) continue;
            say("%s%s = %lld", any ? ", " : "", kernel->names[slot], (long long)call->values[slot]);
            said[slot] = any = true;
        }
        say(")");
        return ZOO_CONSTRAINT_ERROR;
    }
    return ZOO_OK;
}

static zoo_status check_same(const call_state *call, int index, const char *what, const uint16_t *expressions, const int64_t *got)
{
    const array_state *array = &call->arrays[index];
    int64_t expected[ZOO_MOST_DIMENSIONS];
    bool free_when_short = *what; /* a stride over at most one element is free */
    zoo_status status = evaluate_all(call, expressions, array->dimensions, expected);
    for (int axis = 0; axis < array->dimensions && !status; axis++) {
        if (expected[axis] == got[axis] || (free_when_short && array->shape[axis] <= 1)) continue;
        status = refuse(call->kernel, ZOO_ARGUMENT_ERROR, "%s: expected %s", call->kernel->arguments[index].name, what);
        say_tuple(expected, array->dimensions);
        say(" = ");
        say_texts(call->kernel, expressions, array->dimensions);
        say(", got ");
        say_tuple(got, array->dimensions);
        if (!*what) say_in_short(call->kernel->arguments[index].help);
    }
    return status;
}

/* ---- 7. strides and alignment ---- */

static zoo_status fit_array(const call_state *call, int index)
{
    const zoo_argument_entry *argument = &call->kernel->arguments[index];
    const array_state *array = &call->arrays[index];
    if (array->empty) return ZOO_OK;
    if (!array->form->contiguous) {
        zoo_status status = check_same(call, index, "strides ", array->form->strides, array->strides);
        if (status) return status;
    } else {
        int64_t contiguous = 1;
        for (int axis = array->dimensions - 1; axis >= 0; axis--) {
            if (array->strides[axis] != contiguous) {
                refuse(call->kernel, ZOO_ARGUMENT_ERROR, "%s: expected a contiguous array, got strides ", argument->name);
                say_tuple(array->strides, array->dimensions);
                return ZOO_ARGUMENT_ERROR;
            }
            contiguous *= array->shape[axis];
        }
    }
    if (array->address % (uint64_t)argument->alignment)
        return refuse(call->kernel, ZOO_ARGUMENT_ERROR, "%s: the address 0x%llx must be a multiple of %d bytes", argument->name,
                      (unsigned long long)array->address, argument->alignment);
    return ZOO_OK;
}

/* ---- 8. overlaps ---- */

static byte_span span_of(const array_state *array)
{
    int64_t itemsize = dtypes[array->dtype].bytes, first = 0, rest = 0;
    for (int axis = 0; axis < array->dimensions; axis++) {
        int64_t step = (array->shape[axis] - 1) * array->strides[axis];
        if (axis == 0) first = step;
        else rest += step;
    }
    bool matrix = array->dimensions > 1 && array->shape[0] > 1;
    byte_span span;
    span.address = (int64_t)array->address;
    span.bytes = (first + rest + 1) * itemsize;
    span.rows = matrix ? array->shape[0] : 1;
    span.pitch = matrix ? array->strides[0] * itemsize : 0;
    span.row = (rest + 1) * itemsize;
    return span;
}

static bool intersect(byte_span a, byte_span b)
{
    if (a.address + a.bytes <= b.address || b.address + b.bytes <= a.address) return false;
    if (a.rows > 1 && b.rows > 1 && a.pitch == b.pitch && a.row <= a.pitch && b.row <= a.pitch) {
        /* columns of one larger buffer: they meet only if their places within the pitch do */
        int64_t ahead = (b.address - a.address) % a.pitch;
        if (ahead < 0) ahead += a.pitch;
        return ahead < a.row || ahead > a.pitch - b.row;
    }
    return true;
}

/* Whether two arrays differ in nothing but the address. */
static bool are_alike(const array_state *one, const array_state *two)
{
    bool alike = one->dtype == two->dtype && one->dimensions == two->dimensions;
    for (int axis = 0; alike && axis < one->dimensions; axis++)
        alike = one->shape[axis] == two->shape[axis] && one->strides[axis] == two->strides[axis];
    return alike;
}

static zoo_status check_overlaps(const call_state *call)
{
    const zoo_kernel *kernel = call->kernel;
    for (int index = 0; index < kernel->argument_count; index++) {
        const array_state *array = &call->arrays[index];
        if (!array->present || array->empty) continue;
        for (int before = 0; before < index; before++) {
            const array_state *other = &call->arrays[before];
            const zoo_argument_entry *one = &kernel->arguments[index], *two = &kernel->arguments[before];
            if (!other->present || other->empty || (one->access == ZOO_ACCESS_READ && two->access == ZOO_ACCESS_READ)) continue;
            bool in_place = one->may_be == before || two->may_be == index;
            if (in_place && array->address == other->address && are_alike(array, other)) continue;
            if (intersect(span_of(array), span_of(other))) {
                const zoo_argument_entry *written = one->access != ZOO_ACCESS_READ ? one : two, *read = written == one ? two : one;
                refuse(kernel, ZOO_ARGUMENT_ERROR, "%s: overlaps %s, and the kernel writes %s", one->name, two->name, written->name);
                if (in_place) say("; %s may be %s itself, with its dtype, shape and strides", read->name, written->name);
                return ZOO_ARGUMENT_ERROR;
            }
        }
    }
    return ZOO_OK;
}

/* ---- 9. the variant ---- */

static bool arch_runs_on(const char *arch, const device_state *device)
{
    size_t length = strlen(arch); /* sm_, major, one digit of minor, a or f */
    int major = 0, minor = arch[length - 2] - '0';
    for (const char *digit = arch + 3; digit < arch + length - 2; digit++) major = 10 * major + (*digit - '0');
    if (arch[length - 1] == 'f') return major == device->major && minor <= device->minor;
    return major == device->major && minor == device->minor;
}

/* The index of the best arch for a device: the exact one, else the latest of its family; -1 for none. */
static int pick_arch(const zoo_kernel *kernel, const device_state *device)
{
    int best = -1;
    for (int index = 0; index < kernel->arch_count; index++) {
        const char *arch = kernel->archs[index];
        if (!arch_runs_on(arch, device)) continue;
        if (best < 0) {
            best = index;
            continue;
        }
        bool exact = arch[strlen(arch) - 1] == 'a', best_exact = kernel->archs[best][strlen(kernel->archs[best]) - 1] == 'a';
        if (exact > best_exact || (exact == best_exact && strcmp(arch, kernel->archs[best]) > 0)) best = index;
    }
    return best;
}

/* How many variants for the device have numbers, which a file of costs may replace. */
static int measured_variants(const zoo_kernel *kernel, const device_state *device)
{
    int arch = pick_arch(kernel, device), count = 0;
    for (int index = 0; arch >= 0 && index < kernel->variant_count; index++)
        count += kernel->variants[index].arch == arch && kernel->variants[index].number_count > 0;
    return count;
}

static void set_constants(call_state *call, const zoo_variant *variant)
{
    int64_t **of_device = call->device->numbers;
    const int64_t *measured = of_device ? of_device[call->kernel->first_variant + (variant - call->kernel->variants)] : NULL;
    for (int index = 0; index < variant->constant_count; index++) {
        call->values[variant->constants[index].slot] = variant->constants[index].value;
        call->known[variant->constants[index].slot] = true;
    }
    for (int index = 0; index < variant->number_count; index++) {
        call->values[variant->numbers[index].slot] = measured ? measured[index] : variant->numbers[index].value;
        call->known[variant->numbers[index].slot] = true;
    }
}

/* Constants and numbers are never symbols of the table as well: tools/builder/scope.py refuses that, so forgetting them restores all. */
static void forget_constants(call_state *call, const zoo_variant *variant)
{
    for (int index = 0; index < variant->constant_count; index++) call->known[variant->constants[index].slot] = false;
    for (int index = 0; index < variant->number_count; index++) call->known[variant->numbers[index].slot] = false;
}

static bool takes(const call_state *call, const zoo_variant *variant)
{
    int several = 0;
    for (int index = 0; index < call->kernel->argument_count; index++) {
        if (!call->kernel->arguments[index].forms || call->kernel->arguments[index].dtype_count < 2) continue;
        bool fits = variant->dtypes[several] == ZOO_ANY || variant->dtypes[several] == call->chosen_dtypes[index];
        if (call->arrays[index].present && !fits) return false;
        several++;
    }
    for (int index = 0; index < call->kernel->option_count; index++)
        if (variant->options[index] != ZOO_ANY && variant->options[index] != call->choices[index]) return false;
    return true;
}

static void say_settings(const call_state *call)
{
    bool any = false;
    for (int index = 0; index < call->kernel->argument_count; index++) {
        const zoo_argument_entry *argument = &call->kernel->arguments[index];
        if (!call->arrays[index].present || argument->dtype_count < 2) continue;
        say("%s%s = %s", any ? ", " : "", argument->name, argument->dtypes[call->chosen_dtypes[index]]);
        any = true;
    }
    for (int index = 0; index < call->kernel->option_count; index++) {
        say("%s%s = %s", any ? ", " : "", call->kernel->options[index].name, call->kernel->options[index].values[call->choices[index]]);
        any = true;
    }
}

static zoo_status choose_variant(call_state *call, const zoo_variant **chosen)
{
    const zoo_kernel *kernel = call->kernel;
    int arch = pick_arch(kernel, call->device);
    if (arch < 0) {
        refuse(kernel, ZOO_ARCHITECTURE_ERROR, "no cubin for compute capability %d.%d; the zoo ships ", call->device->major,
               call->device->minor);
        for (int index = 0; index < kernel->arch_count; index++) say("%s%s", index ? ", " : "", kernel->archs[index]);
        return ZOO_ARCHITECTURE_ERROR;
    }
    bool known = false;
    const zoo_variant *fitting = NULL;
    int64_t best_cost = 0;
    *chosen = NULL;
    for (int index = 0; index < kernel->variant_count; index++) {
        const zoo_variant *variant = &kernel->variants[index];
        if (variant->arch != arch || (call->pinned && strcmp(variant->name, call->pinned))) continue;
        known = true;
        if (!takes(call, variant)) continue;
        fitting = variant;
        int64_t holds = 0, cost = 0;
        set_constants(call, variant);
        zoo_status status = evaluate(call, variant->when, &holds);
        if (!status && holds) status = evaluate(call, variant->cost, &cost);
        if (status && holds && variant->number_count)
            say("; run `zoo tune` again, or unset ZOO_COSTS"); /* shipped numbers are too small for that */
        forget_constants(call, variant);
        if (status) return status;
        if (holds && (!*chosen || cost < best_cost)) {
            *chosen = variant;
            best_cost = cost;
        }
    }
    if (*chosen) return ZOO_OK;
    if (!known) {
        refuse(kernel, ZOO_VARIANT_ERROR, "variant '%s' does not exist for %s", call->pinned, kernel->archs[arch]);
        return ZOO_VARIANT_ERROR;
    }
    if (call->pinned) refuse(kernel, ZOO_VARIANT_ERROR, "variant '%s' for %s does not take ", call->pinned, kernel->archs[arch]);
    else refuse(kernel, ZOO_VARIANT_ERROR, "no variant for %s takes ", kernel->archs[arch]);
    if (!fitting) {
        say_settings(call);
    } else {
        bool any = false;
        say("these sizes: ");
        for (int index = 0; index < call->order_count; index++) {
            int slot = call->order[index];
            if (strchr(kernel->names[slot], '.')) continue;
            say("%s%s = %lld", any ? ", " : "", kernel->names[slot], (long long)call->values[slot]);
            any = true;
        }
        if (call->pinned) say("; it takes calls with %s", kernel->expressions[fitting->when].text);
    }
    return ZOO_VARIANT_ERROR;
}

/* ---- 10. the launch ---- */

/* A tensor map before the driver encodes it; as the record of zoo/contract/tensor_map.py. */
typedef struct {
    int offset;
    int rank;
    const zoo_map_recipe *recipe;
    uint64_t address;
    int64_t dims[5], strides[4], box[5], steps[5];
} logical_map;

typedef struct {
    zoo_device *device;
    const zoo_kernel *kernel;
    const zoo_variant *variant;
    void *function;
    uint32_t grid[3], cluster[3], threads, shared;
    bool empty;
    int attribute_count;
    launch_attribute attributes[2];
    /* Pointers to each parameter rather than the block as a whole: sm_90a places parameters that are aligned to 64 bytes by
       their absolute address in the constant bank, which begins at 0x210, so that the device's layout is not the block's. */
    void *parameters[ZOO_MOST_PARAMETERS];
    unsigned char block[ZOO_MOST_BLOCK_BYTES];
    int map_count;
    logical_map maps[ZOO_MOST_TENSOR_MAPS];
} plan_state;

static const struct {
    const char *name;
    int bits;
    bool floating;
} map_types[] = {
#define TYPE(name, bits, floating) {name, bits, floating},
    ZOO_MAP_TYPES(TYPE)
#undef TYPE
};
static const struct {
    const char *name;
    int bytes;
} map_swizzles[] = {
#define SWIZZLE(name, bytes) {name, bytes},
    ZOO_MAP_SWIZZLES(SWIZZLE)
#undef SWIZZLE
};

/* TensorMap.refusal(): the same rules in the same order. */
static zoo_status check_map(const zoo_kernel *kernel, const char *argument, const logical_map *map)
{
    const zoo_map_recipe *recipe = map->recipe;
    bool packed16 = recipe->type == ZOO_MAP_U4_ALIGN16 || recipe->type == ZOO_MAP_U6_ALIGN16;
    int unit = packed16 ? ZOO_LIMIT_MAP_PACKED_ALIGNMENT : ZOO_LIMIT_MAP_ALIGNMENT, bits = map_types[recipe->type].bits;
#define REFUSE_MAP(...) return refuse(kernel, ZOO_CONSTRAINT_ERROR, __VA_ARGS__)
    if (map->address % (uint64_t)unit)
        REFUSE_MAP("%s: tensor map: the address 0x%llx must be a multiple of %d bytes", argument, (unsigned long long)map->address, unit);
    for (int index = 0; index < map->rank; index++)
        if (map->dims[index] < 1 || map->dims[index] > (int64_t)1 << ZOO_LIMIT_MAP_EXTENT_BITS)
            REFUSE_MAP("%s: tensor map: dimension %d has %lld elements, expected 1 to 2^%d", argument, index, (long long)map->dims[index],
                       ZOO_LIMIT_MAP_EXTENT_BITS);
    for (int index = 0; index + 1 < map->rank; index++)
        if (map->strides[index] % unit || map->strides[index] < 0 || map->strides[index] >= (int64_t)1 << ZOO_LIMIT_MAP_STRIDE_BITS)
            REFUSE_MAP("%s: tensor map: the stride of dimension %d is %lld bytes, expected a multiple of %d below 2^%d", argument,
                       index + 1, (long long)map->strides[index], unit, ZOO_LIMIT_MAP_STRIDE_BITS);
    for (int index = 0; index < map->rank; index++)
        if (map->box[index] < 1 || map->box[index] > ZOO_LIMIT_MAP_BOX)
            REFUSE_MAP("%s: tensor map: dimension %d of the box has %lld elements, expected 1 to %d", argument, index,
                       (long long)map->box[index], ZOO_LIMIT_MAP_BOX);
    for (int index = 0; index < map->rank; index++)
        if (map->steps[index] < 1 || map->steps[index] > ZOO_LIMIT_MAP_STEP)
            REFUSE_MAP("%s: tensor map: element stride %d is %lld, expected 1 to %d", argument, index, (long long)map->steps[index],
                       ZOO_LIMIT_MAP_STEP);
    int inner_bits = (int)map->box[0] * bits;
    if (packed16) {
        if (map->dims[0] % ZOO_LIMIT_MAP_PACKED_ROW || map->box[0] != ZOO_LIMIT_MAP_PACKED_ROW)
            REFUSE_MAP("%s: tensor map: packed 4 and 6-bit rows need a multiple of %d elements and a box of %d", argument,
                       ZOO_LIMIT_MAP_PACKED_ROW, ZOO_LIMIT_MAP_PACKED_ROW);
        if (recipe->swizzle != ZOO_SWIZZLE_NONE && recipe->swizzle != ZOO_SWIZZLE_128B && recipe->swizzle != ZOO_SWIZZLE_128B_ATOM_32B)
            REFUSE_MAP("%s: tensor map: packed 4 and 6-bit elements cannot be swizzled by %s", argument,
                       map_swizzles[recipe->swizzle].name);
    } else {
        if (recipe->type == ZOO_MAP_U4_ALIGN8 && map->dims[0] % 2)
            REFUSE_MAP("%s: tensor map: packed 4-bit rows need an even number of elements", argument);
        if (inner_bits % (8 * ZOO_LIMIT_MAP_BOX_ROW))
            REFUSE_MAP("%s: tensor map: a box row has %d bytes, expected a multiple of %d", argument, inner_bits / 8,
                       ZOO_LIMIT_MAP_BOX_ROW);
        if (recipe->swizzle != ZOO_SWIZZLE_NONE && inner_bits / 8 > map_swizzles[recipe->swizzle].bytes)
            REFUSE_MAP("%s: tensor map: a box row has %d bytes, more than the %d of swizzle %s", argument, inner_bits / 8,
                       map_swizzles[recipe->swizzle].bytes, map_swizzles[recipe->swizzle].name);
    }
    if (recipe->fill == ZOO_FILL_NAN && !map_types[recipe->type].floating)
        REFUSE_MAP("%s: tensor map: elements of type %s cannot be filled with NaN", argument, map_types[recipe->type].name);
#undef REFUSE_MAP
    return ZOO_OK;
}

static zoo_status make_map(const call_state *call, const zoo_parameter *parameter, logical_map *map)
{
    const zoo_map_recipe *recipe = parameter->map;
    zoo_status status;
    memset(map, 0, sizeof *map);
    map->offset = parameter->offset;
    map->rank = recipe->rank;
    map->recipe = recipe;
    map->address = call->arrays[parameter->argument].address;
    if ((status = evaluate_all(call, recipe->dims, map->rank, map->dims))) return status;
    if ((status = evaluate_all(call, recipe->strides, map->rank - 1, map->strides))) return status;
    if ((status = evaluate_all(call, recipe->box, map->rank, map->box))) return status;
    if ((status = evaluate_all(call, recipe->steps, map->rank, map->steps))) return status;
    return check_map(call->kernel, call->kernel->arguments[parameter->argument].name, map);
}

static bool reads_multiprocessors(const zoo_expression *expression)
{
    for (int index = 0; index < expression->length; index++)
        if (expression->code[index].opcode == ZOO_DO_LOAD && expression->code[index].operand == 0) return true;
    return false;
}

/* Everything of a launch but the driver's part of it: tensor maps are still zero in the block. */
static zoo_status lay_out(call_state *call, const zoo_variant *variant, plan_state *plan)
{
    static const int64_t limits[3] = {ZOO_LIMIT_GRID_X, ZOO_LIMIT_GRID_Y, ZOO_LIMIT_GRID_Z};
    const zoo_kernel *kernel = call->kernel;
    const zoo_launch_rule *rule = &kernel->launches[variant->launch];
    int64_t grid[3], cluster[3], alone;
    zoo_status status;
    set_constants(call, variant);
    if ((status = evaluate_all(call, rule->grid, 3, grid))) return status;
    for (int axis = 0; axis < 3; axis++)
        if (grid[axis] < 0 || grid[axis] > limits[axis])
            return refuse(kernel, ZOO_CONSTRAINT_ERROR, "the grid's %c would be %lld, outside 0 to %lld", "xyz"[axis],
                          (long long)grid[axis], (long long)limits[axis]);
    if ((status = evaluate_all(call, rule->cluster, 3, cluster))) return status;
    bool possible = true;
    for (int axis = 0; axis < 3; axis++) possible &= cluster[axis] >= 1 && cluster[axis] <= ZOO_LIMIT_CLUSTER;
    if (!possible) {
        refuse(kernel, ZOO_CONSTRAINT_ERROR, "cannot start clusters of ");
        say_tuple(cluster, 3);
        return ZOO_CONSTRAINT_ERROR;
    }
    if (call->limit < call->device->multiprocessors && reads_multiprocessors(&kernel->expressions[rule->grid[0]])) {
        int64_t most = call->limit - call->limit % cluster[0]; /* a CTA each: two would be spread over twice as many */
        if (grid[0] > most) grid[0] = most;
    }
    if ((status = evaluate(call, rule->alone, &alone))) return status;
    plan->device = call->device->self;
    plan->kernel = kernel;
    plan->variant = variant;
    plan->empty = false;
    for (int axis = 0; axis < 3; axis++) {
        plan->grid[axis] = (uint32_t)grid[axis];
        plan->cluster[axis] = (uint32_t)cluster[axis];
        plan->empty |= grid[axis] == 0;
    }
    plan->threads = variant->threads;
    plan->shared = alone ? ZOO_LIMIT_SHARED - variant->static_shared : variant->shared;
    plan->map_count = 0;
    memset(plan->block, 0, rule->parameter_bytes);
    for (int index = 0; index < rule->parameter_count; index++) {
        const zoo_parameter *parameter = &rule->parameters[index];
        unsigned char *place = plan->block + parameter->offset;
        plan->parameters[index] = place;
        switch (parameter->kind) {
        case ZOO_POINTER: memcpy(place, &call->arrays[parameter->argument].address, 8); break;
        case ZOO_F32: {
            float number = (float)call->numbers[parameter->argument];
            memcpy(place, &number, 4);
            break;
        }
        case ZOO_TENSOR_MAP:
            if (!call->arrays[parameter->argument].present || plan->empty) break;
            if ((status = make_map(call, parameter, &plan->maps[plan->map_count++]))) return status;
            break;
        case ZOO_I32:
        case ZOO_I64: {
            int64_t value;
            if ((status = evaluate(call, parameter->expression, &value))) return status;
            if (parameter->kind == ZOO_I32 && (value < INT32_MIN || value > INT32_MAX))
                return refuse(kernel, ZOO_CONSTRAINT_ERROR, "%s = %lld does not fit 32 bits",
                              kernel->expressions[parameter->expression].text, (long long)value);
            int32_t narrow = (int32_t)value;
            if (parameter->kind == ZOO_I32) memcpy(place, &narrow, 4);
            else memcpy(place, &value, 8);
        }
        }
    }
    return ZOO_OK;
}

/* ---- a call from its arguments to a plan without its function ---- */

static const zoo_kernel *find_kernel(const char *name)
{
    if (!name) {
        fail(ZOO_UNKNOWN_KERNEL_ERROR, "the kernel's name is NULL");
        return NULL;
    }
    for (int index = 0; index < zoo_kernels_count; index++)
        if (!strcmp(zoo_kernels[index].name, name)) return &zoo_kernels[index];
    fail(ZOO_UNKNOWN_KERNEL_ERROR, "no kernel is named '%s'; this library holds ", name);
    for (int index = 0; index < zoo_kernels_count; index++) say("%s%s", index ? ", " : "", zoo_kernels[index].name);
    return NULL;
}

static zoo_status begin_call(call_state *call, const device_state *device, const zoo_kernel *kernel, const zoo_argument *arguments,
                             size_t count, int asked)
{
    zoo_status status;
    call->kernel = kernel;
    call->device = device;
    call->pinned = NULL;
    call->limit = device->multiprocessors;
    call->asked = asked;
    call->order_count = 0;
    memset(call->known, 0, sizeof call->known);
    memset(call->is_stride, 0, sizeof call->is_stride);
    for (int index = 0; index < kernel->argument_count; index++) memset(&call->arrays[index], 0, sizeof call->arrays[index]);
    set_value(call, 0, device->multiprocessors);
    if ((status = check_given(kernel, arguments, count, asked))) return status;
    if ((status = check_kinds(kernel, arguments, count))) return status;
    if ((status = sort_arguments(call, arguments, count))) return status;
    if ((status = set_flags_and_forms(call))) return status;
    for (int index = 0; index < kernel->argument_count; index++)
        if (call->arrays[index].present && (status = bind_array(call, index))) return status;
    bind_absent(call);
    if ((status = check_device(call))) return status;
    return derive(call);
}

static zoo_status resolve(const device_state *device, const char *name, const zoo_argument *arguments, size_t count, plan_state *plan)
{
    const zoo_kernel *kernel = find_kernel(name);
    if (!kernel) return ZOO_UNKNOWN_KERNEL_ERROR;
    if (device->refused_costs && measured_variants(kernel, device)) return fail(ZOO_INTEGRITY_ERROR, "%s", device->refused_costs);
    call_state call;
    const zoo_variant *variant;
    zoo_status status = begin_call(&call, device, kernel, arguments, count, -1);
    if (status || (status = check_constraints(&call, false))) return status;
    for (int index = 0; index < kernel->argument_count; index++)
        if (call.arrays[index].present && (status = check_same(&call, index, "", call.arrays[index].form->shape, call.arrays[index].shape)))
            return status;
    if ((status = check_constraints(&call, true))) return status;
    for (int index = 0; index < kernel->argument_count; index++)
        if (call.arrays[index].present && (status = fit_array(&call, index))) return status;
    if ((status = check_overlaps(&call))) return status;
    if ((status = choose_variant(&call, &variant))) return status;
    return lay_out(&call, variant, plan);
}

/* ---- loading ---- */

static zoo_status check_cubin(const zoo_cubin *cubin)
{
    unsigned char digest[32];
    sha256(cubin->data, cubin->bytes, digest);
    if (memcmp(digest, cubin->sha256, sizeof digest))
        return fail(ZOO_INTEGRITY_ERROR, "the cubin %s was altered: its sha256 is not the manifest's; run `zoo export` again", cubin->file);
    return ZOO_OK;
}

/* Under process_lock, with the device's context current and the thread's capture mode relaxed. */
static zoo_status load_function(const device_state *device, const zoo_kernel *kernel, const zoo_variant *variant, void **function)
{
    const zoo_cubin *cubin = &zoo_cubins[variant->cubin];
    const zoo_launch_rule *rule = &kernel->launches[variant->launch];
    void **library = &loaded_libraries[variant->cubin], *handle;
    int result;
    if (!*library) {
        zoo_status status = check_cubin(cubin);
        if (status) return status;
        if ((result = driver.library_load(library, cubin->data, NULL, NULL, 0, NULL, NULL, 0))) {
            *library = NULL;
            return fail_driver(result, "loading %s on %s", cubin->file, device->name);
        }
    }
    if ((result = driver.library_kernel(&handle, *library, variant->symbol)))
        return fail_driver(result, "finding %s in %s", variant->symbol, cubin->file);
    if ((result = driver.kernel_function(function, handle)))
        return fail_driver(result, "preparing %s on %s", variant->symbol, device->name);
    int static_shared = 0;
    if ((result = driver.function_get(&static_shared, STATIC_SHARED, *function)))
        return fail_driver(result, "asking %s for its shared memory", variant->symbol);
    int dynamic = device->shared_memory - static_shared;
    bool much = variant->shared || strcmp(kernel->expressions[rule->alone].text, "0") != 0;
    if (much && dynamic > PORTABLE_SHARED && (result = driver.function_set(*function, DYNAMIC_SHARED, dynamic)))
        return fail_driver(result, "giving %s shared memory", variant->symbol);
    bool clustered = false;
    for (int axis = 0; axis < 3; axis++) clustered |= strcmp(kernel->expressions[rule->cluster[axis]].text, "1") != 0;
    if (clustered && (result = driver.function_set(*function, WIDE_CLUSTER, 1)))
        return fail_driver(result, "allowing %s its cluster", variant->symbol);
    /* The driver may load lazily, at the first launch: under a capture that would be too late. */
    if ((result = driver.function_load(*function))) return fail_driver(result, "loading %s on %s", variant->symbol, device->name);
    return ZOO_OK;
}

static zoo_status load_variant(const device_state *device, const zoo_kernel *kernel, const zoo_variant *variant)
{
    void **slot = &device->functions[kernel->first_variant + (variant - kernel->variants)], *function = NULL;
    zoo_status status;
    bool pushed;
    int mode = RELAXED, result; /* loading must not spoil the capture of some other stream */
    if (driver_process() != getpid()) return fail_forked();
    if ((status = enter_context(device, &pushed))) return status;
    if ((result = driver.exchange_capture_mode(&mode))) {
        status = fail_driver(result, "entering relaxed capture mode");
    } else {
        pthread_mutex_lock(&process_lock);
        if (!*slot && !(status = load_function(device, kernel, variant, &function))) __atomic_store_n(slot, function, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&process_lock);
        if ((result = driver.exchange_capture_mode(&mode)) && !status) status = fail_driver(result, "leaving relaxed capture mode");
    }
    return leave_context(pushed, status);
}

static void *loaded_function(const device_state *device, const zoo_kernel *kernel, const zoo_variant *variant)
{ return __atomic_load_n(&device->functions[kernel->first_variant + (variant - kernel->variants)], __ATOMIC_ACQUIRE); }

static zoo_status check_capture(const device_state *device, const zoo_variant *variant, void *stream)
{
    bool pushed;
    int capturing = 0;
    zoo_status status = enter_context(device, &pushed);
    if (status) return status;
    int result = driver.stream_capturing(stream, &capturing);
    if (result && result != CAPTURE_IMPLICIT) status = fail_driver(result, "asking whether the stream is being captured");
    if ((status = leave_context(pushed, status))) return status;
    if (result || capturing)
        return fail(ZOO_CAPTURE_ERROR,
                    "%s is not loaded on device %d, and its stream is being captured; "
                    "call zoo_load or launch it once before the capture",
                    variant->symbol, device->ordinal);
    return ZOO_OK;
}

static zoo_status encode_map(plan_state *plan, const logical_map *map)
{
    unsigned char encoded[128] __attribute__((aligned(128)));
    uint64_t dims[5], strides[5] = {0};
    uint32_t box[5], steps[5];
    for (int index = 0; index < map->rank; index++) {
        dims[index] = (uint64_t)map->dims[index];
        box[index] = (uint32_t)map->box[index];
        steps[index] = (uint32_t)map->steps[index];
        if (index + 1 < map->rank) strides[index] = (uint64_t)map->strides[index];
    }
    int result = driver.encode_map(encoded, map->recipe->type, (uint32_t)map->rank, (void *)(uintptr_t)map->address, dims, strides, box,
                                   steps, 0, map->recipe->swizzle, map->recipe->promotion, map->recipe->fill);
    if (result) return fail_driver(result, "encoding a tensor map of %s", plan->variant->symbol);
    memcpy(plan->block + map->offset, encoded, sizeof encoded);
    return ZOO_OK;
}

/* What remains of a resolved plan: its function, its tensor maps in the driver's form, its attributes. */
static zoo_status complete(const device_state *device, plan_state *plan, void *stream)
{
    zoo_status status;
    plan->function = NULL;
    if (device->without_gpu) return ZOO_OK;
    plan->function = loaded_function(device, plan->kernel, plan->variant);
    if (!plan->function) {
        if ((status = check_capture(device, plan->variant, stream))) return status;
        if ((status = load_variant(device, plan->kernel, plan->variant))) return status;
        plan->function = loaded_function(device, plan->kernel, plan->variant);
    }
    for (int index = 0; index < plan->map_count; index++)
        if ((status = encode_map(plan, &plan->maps[index]))) return status;
    plan->attribute_count = 0;
    if (plan->cluster[0] * plan->cluster[1] * plan->cluster[2] > 1) {
        launch_attribute *attribute = &plan->attributes[plan->attribute_count++];
        memset(attribute, 0, sizeof *attribute);
        attribute->id = CLUSTER_DIMENSION;
        memcpy(attribute->value.dimensions, plan->cluster, sizeof plan->cluster);
    }
    if (plan->kernel->launches[plan->variant->launch].programmatic) {
        launch_attribute *attribute = &plan->attributes[plan->attribute_count++];
        memset(attribute, 0, sizeof *attribute);
        attribute->id = PROGRAMMATIC_SERIALIZATION;
        attribute->value.flag = 1;
    }
    return ZOO_OK;
}

/* ---- zoo.h ---- */

int zoo_abi_version(void) { return ZOO_ABI_VERSION; }

const char *zoo_status_name(zoo_status status)
{
    static const char *const names[] = {
        "OK",           "IntegrityError", "UnknownKernelError", "ArgumentError", "ConstraintError", "VariantError", "ArchitectureError",
        "CaptureError", "DriverError",    "ForkError",          "MemoryError"};
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown status";
}

const char *zoo_last_error(void) { return last_error.text; }
int zoo_last_driver_status(void) { return last_error.driver_status; }

DLDataType zoo_dtype(const char *name)
{
    DLDataType type = {0, 0, 0};
    int index = name ? dtype_of_name(name) : -1;
    if (index >= 0) {
        type.code = (uint8_t)dtypes[index].code;
        type.bits = (uint8_t)dtypes[index].bits;
        type.lanes = (uint16_t)dtypes[index].lanes;
    }
    return type;
}

DLTensor zoo_array(void *address, int device, const char *dtype, int ndim, int64_t *shape)
{
    DLTensor tensor;
    tensor.data = address;
    tensor.device.device_type = ON_CUDA;
    tensor.device.device_id = device;
    tensor.ndim = ndim;
    tensor.dtype = zoo_dtype(dtype);
    tensor.shape = shape;
    tensor.strides = NULL;
    tensor.byte_offset = 0;
    return tensor;
}

/* ---- a file of measured costs: zoo/contract/costs.py has its rules ---- */

enum { LARGEST_COSTS = 4 << 20, COSTS_SCHEMA = 1 };

typedef struct {
    const char *start, *at, *end;
    device_state *device;
    bool no_memory;
} costs_reader;

typedef struct {
    const char *start;
    size_t length;
} span;

static bool is_word(span text, const char *word) { return text.length == strlen(word) && !memcmp(text.start, word, text.length); }

static void skip_blanks(costs_reader *file)
{
    while (file->at < file->end && (*file->at == ' ' || *file->at == '\t' || *file->at == '\n' || *file->at == '\r')) file->at++;
}

static bool skip_char(costs_reader *file, char wanted)
{
    skip_blanks(file);
    if (file->at == file->end || *file->at != wanted) return false;
    file->at++;
    return true;
}

static bool read_text(costs_reader *file, span *text)
{
    if (!skip_char(file, '"')) return false;
    text->start = file->at;
    for (; file->at < file->end && *file->at != '"'; file->at++)
        if (*file->at < ' ' || *file->at > '~' || *file->at == '\\') return false;
    text->length = (size_t)(file->at - text->start);
    return skip_char(file, '"');
}

static bool read_whole(costs_reader *file, int64_t *number)
{
    if (skip_char(file, '0')) return (*number = 0, true);
    for (*number = 0; file->at < file->end && *file->at >= '0' && *file->at <= '9'; file->at++)
        if ((*number = 10 * *number + (*file->at - '0')) > INT32_MAX) return false;
    return *number > 0;
}

/* The next key of an object; false at its end, and where there is none (`*fine` is false then). */
static bool next_key(costs_reader *file, int *count, span *key, bool *fine)
{
    if (!*fine || skip_char(file, '}')) return false;
    *fine = (!*count || skip_char(file, ',')) && read_text(file, key) && skip_char(file, ':');
    ++*count;
    return *fine;
}

/* The numbers of a variant, which may be NULL: one that the package has not. `*fits` says whether they are the variant's. */
static bool read_numbers(costs_reader *file, const zoo_kernel *kernel, const zoo_variant *variant, int64_t *numbers, bool *fits)
{
    int count = 0, most = variant ? variant->number_count : 0;
    bool fine = skip_char(file, '{');
    int64_t number;
    for (span key; next_key(file, &count, &key, &fine);) {
        int place = 0;
        if (!(fine = read_whole(file, &number) && number > 0)) break;
        while (place < most && !is_word(key, kernel->names[variant->numbers[place].slot])) place++;
        if (place == most) {
            *fits = false;
            continue;
        }
        if (!(fine = !numbers[place])) break; /* twice */
        numbers[place] = number;
    }
    *fits = *fits && count == most;
    return fine;
}

static bool is_digest(span text, const unsigned char digest[32])
{
    static const char digits[] = "0123456789abcdef";
    bool same = text.length == 64;
    for (size_t index = 0; same && index < 64; index++) same = text.start[index] == digits[digest[index / 2] >> (index % 2 ? 0 : 4) & 15];
    return same;
}

static bool read_measured(costs_reader *file, const zoo_kernel *kernel, const zoo_variant *variant, int64_t *numbers, bool *fits)
{
    int count = 0;
    bool fine = skip_char(file, '{');
    bool seen[3] = {false, false, false};
    for (span key, text; next_key(file, &count, &key, &fine);) {
        int which = is_word(key, "cubin") ? 0 : is_word(key, "cost") ? 1 : 2;
        if (which == 2 && !is_word(key, "numbers")) return false;
        fine = !seen[which] && (which == 2 ? read_numbers(file, kernel, variant, numbers, fits) : read_text(file, &text));
        seen[which] = true;
        if (fine && variant && which == 0) *fits = *fits && is_digest(text, zoo_cubins[variant->cubin].sha256);
        if (fine && variant && which == 1) *fits = *fits && is_word(text, kernel->expressions[variant->cost].text);
    }
    return fine && seen[0] && seen[1] && seen[2];
}

/* A kernel, which may be NULL: one that the package has not. Either all of its variants have numbers of the file afterwards, or none has. */
static bool read_kernel(costs_reader *file, const zoo_kernel *kernel)
{
    int count = 0, arch = kernel ? pick_arch(kernel, file->device) : -1;
    bool fine = skip_char(file, '{'), fits = true;
    int64_t **numbers = kernel ? file->device->numbers + kernel->first_variant : NULL;
    for (span key; next_key(file, &count, &key, &fine);) {
        const zoo_variant *variant = NULL;
        int64_t *own = NULL;
        for (int index = 0; arch >= 0 && index < kernel->variant_count; index++) {
            const zoo_variant *one = &kernel->variants[index];
            if (one->arch != arch || !one->number_count || !is_word(key, one->name)) continue;
            if (numbers[index]) return false; /* twice */
            variant = one;
            own = numbers[index] = (int64_t *)calloc(one->number_count, sizeof(int64_t));
            if (!own) return !(file->no_memory = true);
        }
        fits = fits && variant;
        fine = read_measured(file, kernel, variant, own, &fits);
    }
    if (!kernel || (fits && count == measured_variants(kernel, file->device))) return fine;
    for (int index = 0; index < kernel->variant_count; index++) {
        free(numbers[index]);
        numbers[index] = NULL;
    }
    return fine;
}

static bool read_kernels(costs_reader *file)
{
    int count = 0;
    bool fine = skip_char(file, '{'), *seen = (bool *)calloc((size_t)zoo_kernels_count, sizeof(bool));
    if (!seen) return !(file->no_memory = true);
    for (span key; next_key(file, &count, &key, &fine);) {
        int index = 0;
        while (index < zoo_kernels_count && !is_word(key, zoo_kernels[index].name)) index++;
        bool known = index < zoo_kernels_count;
        fine = !(known && seen[index]) && read_kernel(file, known ? &zoo_kernels[index] : NULL);
        if (known) seen[index] = true;
    }
    free(seen);
    return fine;
}

static zoo_status refuse_costs(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
static zoo_status refuse_costs(const char *path, const char *format, ...)
{
    va_list pieces;
    begin_words();
    say("the file of costs %s ", path);
    va_start(pieces, format);
    say_list(format, pieces);
    va_end(pieces);
    say("; run `zoo tune` again, or unset ZOO_COSTS");
    return ZOO_INTEGRITY_ERROR;
}

static zoo_status parse_costs(const char *path, costs_reader *file)
{
    device_state *device = file->device;
    span chip = {NULL, 0};
    int64_t schema = -1, multiprocessors = 0;
    int count = 0;
    bool fine = skip_char(file, '{'), seen[4] = {false, false, false, false};
    for (span key; next_key(file, &count, &key, &fine);) {
        static const char *const keys[] = {"schema", "chip", "multiprocessors", "kernels"};
        int which = 0;
        while (which < 4 && !is_word(key, keys[which])) which++;
        if (!(fine = which < 4 && !seen[which])) break;
        seen[which] = true;
        fine = which == 0   ? read_whole(file, &schema)
               : which == 1 ? read_text(file, &chip)
               : which == 2 ? read_whole(file, &multiprocessors)
                            : read_kernels(file);
    }
    if (file->no_memory) return fail(ZOO_MEMORY_ERROR, "out of memory");
    skip_blanks(file);
    if (!fine || file->at != file->end || count != 4 || !multiprocessors)
        return refuse_costs(path, "is damaged, at byte %zu", (size_t)(file->at - file->start));
    if (schema != COSTS_SCHEMA) return refuse_costs(path, "is damaged: it has schema %d, this zoo reads %d", (int)schema, COSTS_SCHEMA);
    if (!is_word(chip, device->name) || multiprocessors != device->multiprocessors)
        return refuse_costs(path, "is of %.*s with %d multiprocessors, this GPU is %s with %d", (int)chip.length, chip.start,
                            (int)multiprocessors, device->name, device->multiprocessors);
    return ZOO_OK;
}

/* The numbers of the file that ZOO_COSTS names, if it names one. */
static zoo_status read_costs(device_state *device)
{
    const char *path = secure_getenv("ZOO_COSTS");
    struct stat found;
    if (!path || !*path) return ZOO_OK;
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) return refuse_costs(path, "cannot be read: %s", strerror(errno));
    bool regular = !fstat(descriptor, &found) && S_ISREG(found.st_mode) && found.st_size <= LARGEST_COSTS;
    size_t size = regular ? (size_t)found.st_size : 0, done = 0;
    char *text = (char *)malloc(size + 1);
    for (ssize_t more = 1; text && more > 0 && done < size; done += more > 0 ? (size_t)more : 0)
        more = read(descriptor, text + done, size - done);
    close(descriptor);
    costs_reader file = {text, text, text ? text + done : NULL, device, false};
    zoo_status status = !text      ? fail(ZOO_MEMORY_ERROR, "out of memory")
                        : !regular ? refuse_costs(path, "cannot be read: it is no regular file of at most %d bytes", LARGEST_COSTS)
                                   : parse_costs(path, &file);
    free(text);
    return status;
}

/* ---- the numbers of costs on a chip: zoo/contract/chips.py has the rules ---- */

typedef struct {
    int64_t multiprocessors, tensor, memory;
} chip;

static int64_t larger(int64_t one, int64_t other) { return one > other ? one : other; }

/* What two works take at once. */
static int64_t beside(int64_t one, int64_t other) { return larger(one, other) + (one + other - larger(one, other)) * ZOO_H200_BOTH / 100; }

static int64_t number_on(chip of, const zoo_cost_number *number)
{
    int64_t mine, whole;
    switch (number->rate) {
    case ZOO_RATE_MEMORY: mine = of.memory, whole = ZOO_H200_MEMORY; break;
    case ZOO_RATE_MULTIPROCESSORS: mine = of.multiprocessors, whole = ZOO_H200_MULTIPROCESSORS; break;
    case ZOO_RATE_TENSOR: mine = 1, whole = of.tensor; break;
    default: return number->value + beside(number->value, number->tensor * of.tensor) - beside(number->value, number->tensor);
    }
    return mine >= whole ? number->value : larger(number->value * mine / whole, 1);
}

static chip chip_of(const device_state *device, int64_t clock, int64_t memory_clock, int64_t memory_bits)
{
    static const struct {
        const char *name;
        int tensor;
    } slow[] = {
#define SLOW(name, tensor) {name, tensor},
        ZOO_SLOW_TENSOR_CORES(SLOW)
#undef SLOW
    };
    chip found = {device->multiprocessors, 1, ZOO_H200_MEMORY};
    int64_t bandwidth = memory_clock * memory_bits / 4000000;
    if (bandwidth > INT32_MAX) bandwidth = INT32_MAX; /* more than an H200's at any clock, and the product below fits 64 bits */
    for (size_t each = 0; each < sizeof slow / sizeof *slow; each++) {
        size_t length = strlen(slow[each].name);
        const char *rest = strncmp(slow[each].name, device->name, length) ? NULL : device->name + length;
        if (rest && (!*rest || !strncmp(rest, ZOO_PART_OF_A_CHIP, strlen(ZOO_PART_OF_A_CHIP)))) found.tensor = slow[each].tensor;
    }
    if (clock && bandwidth) {
        int64_t memory = ZOO_H200_MEMORY * bandwidth * ZOO_H200_CLOCK / (ZOO_H200_BANDWIDTH * clock);
        if (memory < ZOO_H200_MEMORY) found.memory = larger(memory, 1);
    }
    return found;
}

/* What no file of costs said. */
static zoo_status set_numbers(device_state *device, chip of)
{
    for (int each = 0; each < zoo_kernels_count; each++) {
        const zoo_kernel *kernel = &zoo_kernels[each];
        for (int index = 0; index < kernel->variant_count; index++) {
            const zoo_variant *variant = &kernel->variants[index];
            int64_t **numbers = &device->numbers[kernel->first_variant + index];
            if (*numbers || !variant->number_count) continue;
            *numbers = (int64_t *)calloc(variant->number_count, sizeof(int64_t));
            if (!*numbers) return fail(ZOO_MEMORY_ERROR, "out of memory");
            for (int number = 0; number < variant->number_count; number++) (*numbers)[number] = number_on(of, &variant->numbers[number]);
        }
    }
    return ZOO_OK;
}

static zoo_status open_device(int ordinal, device_state *device)
{
    int count, result, clock, memory_clock, memory_bits;
    zoo_status status;
    if ((result = driver.device_count(&count))) return fail_driver(result, "counting devices");
    if (ordinal < 0 || ordinal >= count) return fail(ZOO_DRIVER_ERROR, "there is no device %d; the driver sees %d", ordinal, count);
    if ((result = driver.device_get(&device->cuda, ordinal))) return fail_driver(result, "opening device %d", ordinal);
    device->ordinal = ordinal;
    if ((result = driver.device_attribute(&device->major, MAJOR, device->cuda)) ||
        (result = driver.device_attribute(&device->minor, MINOR, device->cuda)) ||
        (result = driver.device_attribute(&device->multiprocessors, MULTIPROCESSORS, device->cuda)) ||
        (result = driver.device_attribute(&device->shared_memory, SHARED_OPT_IN, device->cuda)) ||
        (result = driver.device_attribute(&clock, CLOCK, device->cuda)) ||
        (result = driver.device_attribute(&memory_clock, MEMORY_CLOCK, device->cuda)) ||
        (result = driver.device_attribute(&memory_bits, MEMORY_BITS, device->cuda)) ||
        (result = driver.device_name(device->name, sizeof device->name, device->cuda)))
        return fail_driver(result, "asking device %d", ordinal);
    device->numbers = (int64_t **)calloc((size_t)zoo_variants_count, sizeof(int64_t *));
    status = device->numbers ? read_costs(device) : fail(ZOO_MEMORY_ERROR, "out of memory");
    if (status == ZOO_INTEGRITY_ERROR) { /* calls of kernels with numbers say so */
        device->refused_costs = strdup(last_error.text);
        status = device->refused_costs ? ZOO_OK : fail(ZOO_MEMORY_ERROR, "out of memory");
    }
    if (!status) status = set_numbers(device, chip_of(device, clock, memory_clock, memory_bits));
    if (status) return status;
    if ((result = driver.context_retain(&device->context, device->cuda))) return fail_driver(result, "starting device %d", ordinal);
    return ZOO_OK;
}

/* A device without what opening finds out; NULL, and the words of a failure, where there is none. */
static device_state *new_device(zoo_status *status)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *status = forked ? fail_forked() : ZOO_OK;
    if (*status) return NULL;
    bool watched = !pthread_once(&once, watch_forks) && !watching;
    device_state *device = watched ? (device_state *)calloc(1, sizeof *device) : NULL;
    void **functions = (void **)calloc((size_t)zoo_variants_count, sizeof(void *));
    zoo_device *handle = device && functions ? (zoo_device *)add_object(device, DEVICE_HANDLE) : NULL;
    if (!handle) {
        free(functions);
        free(device);
        *status = fail(ZOO_MEMORY_ERROR, "out of memory");
        return NULL;
    }
    device->self = handle;
    device->functions = functions;
    return device;
}

static void free_device(device_state *device)
{
    for (int index = 0; device->numbers && index < zoo_variants_count; index++) free(device->numbers[index]);
    free(device->numbers);
    free(device->refused_costs);
    free(device->functions);
    free(device);
}

zoo_status zoo_open(int ordinal, zoo_device **device)
{
    zoo_status status;
    if (!device) return fail(ZOO_ARGUMENT_ERROR, "zoo_open: the place for the device is NULL");
    *device = NULL;
    device_state *opened = new_device(&status);
    if (!opened) return status;
    pthread_mutex_lock(&process_lock);
    if (!loaded_libraries) loaded_libraries = (void **)calloc((size_t)zoo_cubins_count, sizeof(void *));
    status = loaded_libraries ? open_driver() : fail(ZOO_MEMORY_ERROR, "out of memory");
    if (!status) status = open_device(ordinal, opened);
    if (!status) open_devices++;
    pthread_mutex_unlock(&process_lock);
    if (!status) {
        *device = opened->self;
        return ZOO_OK;
    }
    remove_object(opened->self, DEVICE_HANDLE);
    free_device(opened);
    return status;
}

/* `sm_90a` for `hopper`, `H100` and `h200`, as in Python; any other word as it is. */
static const char *arch_called(const char *word)
{
    static const char *const called[][2] = {
        {"hopper", "sm_90a"}, {"h100", "sm_90a"}, {"h200", "sm_90a"}, {"blackwell", "sm_100f"}, {"b200", "sm_100f"}, {"b300", "sm_100f"},
    };
    for (size_t each = 0; each < sizeof called / sizeof *called; each++) {
        const char *letter = word, *name = called[each][0];
        while (*name && (*letter == *name || (*letter >= 'A' && *letter <= 'Z' && *letter + ('a' - 'A') == *name))) letter++, name++;
        if (!*name && !*letter) return called[each][1];
    }
    return word;
}

/* sm_, two or three digits, of which the last is the minor version, and a or f. */
static bool read_arch(const char *arch, int *major, int *minor)
{
    int digits = 0;
    if (strncmp(arch, "sm_", 3)) return false;
    while (arch[3 + digits] >= '0' && arch[3 + digits] <= '9') digits++;
    const char *last = arch + 3 + digits;
    if (digits < 2 || digits > 3 || (*last != 'a' && *last != 'f') || last[1]) return false;
    int number = atoi(arch + 3);
    *major = number / 10;
    *minor = number % 10;
    return true;
}

zoo_status zoo_open_arch(const char *arch, int multiprocessors, zoo_device **device)
{
    zoo_status status;
    int major, minor;
    if (!device) return fail(ZOO_ARGUMENT_ERROR, "zoo_open_arch: the place for the device is NULL");
    *device = NULL;
    if (arch) arch = arch_called(arch);
    if (!arch || !read_arch(arch, &major, &minor))
        return fail(ZOO_ARCHITECTURE_ERROR, "zoo_open_arch: no arch is '%.20s'; archs are spelt as sm_90a and sm_100f",
                    arch ? arch : "NULL");
    if (multiprocessors < 1) return fail(ZOO_ARGUMENT_ERROR, "zoo_open_arch: expected at least 1 multiprocessor, got %d", multiprocessors);
    device_state *opened = new_device(&status);
    if (!opened) return status;
    opened->without_gpu = true;
    opened->major = major;
    opened->minor = minor;
    opened->multiprocessors = multiprocessors;
    snprintf(opened->name, sizeof opened->name, "%s", arch);
    *device = opened->self;
    return ZOO_OK;
}

/* Everything is given back that can be; the first failure is told. */
zoo_status zoo_close(zoo_device *handle)
{
    if (!handle) return ZOO_OK;
    if (forked || (driver_process() && driver_process() != getpid())) return fail_forked();
    device_state *device = (device_state *)remove_object(handle, DEVICE_HANDLE);
    if (!device) return fail_device(handle);
    zoo_status status = ZOO_OK;
    int result;
    if (device->without_gpu) {
        free_device(device);
        return ZOO_OK;
    }
    pthread_mutex_lock(&process_lock);
    open_devices--;
    for (int index = 0; index < zoo_cubins_count && open_devices == 0; index++) {
        if (!loaded_libraries[index]) continue;
        if ((result = driver.library_unload(loaded_libraries[index])) && !status)
            status = fail_driver(result, "unloading %s", zoo_cubins[index].file);
        loaded_libraries[index] = NULL;
    }
    if ((result = driver.context_release(device->cuda)) && !status) status = fail_driver(result, "leaving device %d", device->ordinal);
    pthread_mutex_unlock(&process_lock);
    free_device(device);
    return status;
}

int zoo_kernel_count(void) { return zoo_kernels_count; }
const char *zoo_kernel_name(int index) { return index >= 0 && index < zoo_kernels_count ? zoo_kernels[index].name : NULL; }
const char *zoo_kernel_summary(int index) { return index >= 0 && index < zoo_kernels_count ? zoo_kernels[index].summary : NULL; }

zoo_status zoo_load(zoo_device *handle, const char *pattern, int *loaded)
{
    device_state *device;
    zoo_status status = find_device(handle, &device);
    int matching = 0, done = 0;
    if (loaded) *loaded = 0;
    if (status) return status;
    if (!pattern) return fail(ZOO_UNKNOWN_KERNEL_ERROR, "zoo_load: the pattern is NULL; \"*\" is every kernel");
    for (int index = 0; index < zoo_kernels_count; index++) {
        const zoo_kernel *kernel = &zoo_kernels[index];
        if (fnmatch(pattern, kernel->name, 0)) continue;
        matching++;
        int arch = pick_arch(kernel, device);
        for (int each = 0; each < kernel->variant_count && arch >= 0; each++) {
            if (kernel->variants[each].arch != arch) continue;
            if (device->without_gpu) return fail_without_gpu(device);
            bool there = loaded_function(device, kernel, &kernel->variants[each]) != NULL;
            status = there ? ZOO_OK : load_variant(device, kernel, &kernel->variants[each]);
            if (status) return status;
            done++;
        }
    }
    if (loaded) *loaded = done;
    if (!matching) return fail(ZOO_UNKNOWN_KERNEL_ERROR, "no kernel matches '%s'", pattern);
    if (!done)
        return fail(ZOO_ARCHITECTURE_ERROR, "%s: nothing to load for %s, compute capability %d.%d", pattern, device->name, device->major,
                    device->minor);
    return ZOO_OK;
}

static zoo_status fail_plan(const zoo_plan *handle)
{
    if (forked) return fail_forked();
    if (!handle) return fail(ZOO_ARGUMENT_ERROR, "the plan is NULL; pass one that zoo_prepare gave");
    return fail(ZOO_ARGUMENT_ERROR, "the plan was freed, or is none that zoo_prepare gave");
}

zoo_status zoo_prepare(zoo_device *handle, const char *kernel, const zoo_argument *arguments, size_t count, void *stream, zoo_plan **plan)
{
    device_state *device;
    if (!plan) return fail(ZOO_ARGUMENT_ERROR, "zoo_prepare: the place for the plan is NULL");
    *plan = NULL;
    zoo_status status = find_device(handle, &device);
    if (status) return status;
    plan_state *made = (plan_state *)malloc(sizeof *made);
    status = made ? resolve(device, kernel, arguments, count, made) : fail(ZOO_MEMORY_ERROR, "out of memory");
    if (!status) status = complete(device, made, stream);
    if (!status && !(*plan = (zoo_plan *)add_object(made, PLAN_HANDLE))) status = fail(ZOO_MEMORY_ERROR, "out of memory");
    if (status) free(made);
    return status;
}

static zoo_status enqueue(const device_state *device, const plan_state *plan, void *stream)
{
    if (device->without_gpu) return fail_without_gpu(device);
    if (plan->empty) return ZOO_OK;
    launch_configuration with;
    for (int axis = 0; axis < 3; axis++) {
        with.grid[axis] = plan->grid[axis];
        with.threads[axis] = axis ? 1 : plan->threads;
    }
    with.shared = plan->shared;
    with.stream = stream;
    with.attributes = (launch_attribute *)plan->attributes; /* the driver reads them only */
    with.attribute_count = (unsigned)plan->attribute_count;
    bool pushed;
    zoo_status status = enter_context(device, &pushed);
    if (status) return status;
    int result = driver.launch(&with, plan->function, (void **)plan->parameters, NULL);
    if (result) status = fail_driver(result, "launching %s", plan->variant->symbol);
    return leave_context(pushed, status);
}

zoo_status zoo_plan_launch(const zoo_plan *handle, void *stream)
{
    const plan_state *plan = forked ? NULL : (const plan_state *)find_object(handle, PLAN_HANDLE);
    if (!plan) return fail_plan(handle);
    const device_state *device = (const device_state *)find_object(plan->device, DEVICE_HANDLE);
    if (!device) return fail(ZOO_ARGUMENT_ERROR, "the plan's device was closed; open it again and prepare the plan anew");
    return enqueue(device, plan, stream);
}

zoo_status zoo_plan_free(zoo_plan *handle)
{
    if (!handle) return ZOO_OK;
    plan_state *plan = forked ? NULL : (plan_state *)remove_object(handle, PLAN_HANDLE);
    if (!plan) return fail_plan(handle);
    free(plan);
    return ZOO_OK;
}

zoo_status zoo_launch(zoo_device *handle, const char *kernel, const zoo_argument *arguments, size_t count, void *stream)
{
    plan_state plan;
    device_state *device;
    zoo_status status = find_device(handle, &device);
    if (!status) status = resolve(device, kernel, arguments, count, &plan);
    if (!status) status = complete(device, &plan, stream);
    return status ? status : enqueue(device, &plan, stream);
}

zoo_plan_shape zoo_plan_describe(const zoo_plan *handle)
{
    zoo_plan_shape shape;
    const plan_state *plan = forked ? NULL : (const plan_state *)find_object(handle, PLAN_HANDLE);
    memset(&shape, 0, sizeof shape);
    if (!plan) {
        fail_plan(handle);
        return shape;
    }
    shape.variant = plan->variant->name;
    shape.arch = plan->kernel->archs[plan->variant->arch];
    shape.symbol = plan->variant->symbol;
    memcpy(shape.grid, plan->grid, sizeof shape.grid);
    memcpy(shape.cluster, plan->cluster, sizeof shape.cluster);
    shape.threads = plan->threads;
    shape.shared_bytes = plan->shared;
    return shape;
}

/* ---- the bytes of an array that is not made yet ---- */

/* Whether the columns of a matrix are contiguous, as those of mn_major scales are. */
static bool lies_by_columns(const call_state *call, const zoo_form *form)
{
    int64_t stride;
    if (form->contiguous || form->dimensions < 2) return false;
    const zoo_expression *expression = &call->kernel->expressions[form->strides[form->dimensions - 2]];
    return expression->bare == ZOO_NONE && compute_expression(call, expression, &stride) == HAS_VALUE && stride == 1;
}

/* Those of a contiguous array; its strides have values from then on, for the constraints that name them. */
static zoo_status measure_expected(call_state *call, int64_t *bytes)
{
    const array_state *array = &call->arrays[call->asked];
    const zoo_form *form = array->form;
    const char *name = call->kernel->arguments[call->asked].name;
    int64_t extents[ZOO_MOST_DIMENSIONS], strides[ZOO_MOST_DIMENSIONS], step = 1;
    for (int axis = 0; axis < form->dimensions; axis++) {
        int64_t missing;
        const zoo_expression *expression = &call->kernel->expressions[form->shape[axis]];
        if (compute_expression(call, expression, &missing) == NAME_WITHOUT_VALUE)
            return refuse(
                call->kernel, ZOO_ARGUMENT_ERROR,
                "%s: its extents depend on %s, which nothing says that was given; pass it too, with its shape (no address is read)", name,
                call->kernel->names[missing]);
    }
    zoo_status status = evaluate_all(call, form->shape, form->dimensions, extents);
    *bytes = dtypes[array->dtype].bytes;
    bool by_columns = lies_by_columns(call, form);
    for (int turn = form->dimensions - 1; turn >= 0 && !status; turn--) {
        int axis = by_columns && turn >= form->dimensions - 2 ? 2 * form->dimensions - 3 - turn : turn;
        strides[axis] = step;
        if (__builtin_mul_overflow(step, extents[axis] > 1 ? extents[axis] : 1, &step) ||
            __builtin_mul_overflow(*bytes, extents[axis] > 0 ? extents[axis] : 0, bytes))
            status = refuse(call->kernel, ZOO_CONSTRAINT_ERROR, "%s: its bytes do not fit 64 bits", name);
    }
    if (status || form->contiguous) return status;
    int before = call->order_count;
    bind(call, form->strides, strides, form->dimensions);
    for (; before < call->order_count; before++) call->is_stride[call->order[before]] = true;
    return ZOO_OK;
}

zoo_status zoo_argument_bytes(zoo_device *handle, const char *name, const zoo_argument *arguments, size_t count, const char *argument,
                              int64_t *bytes)
{
    device_state *device;
    call_state call;
    zoo_status status = find_device(handle, &device);
    const zoo_kernel *kernel = status ? NULL : find_kernel(name);
    if (!kernel) return status ? status : ZOO_UNKNOWN_KERNEL_ERROR;
    if (!bytes) return refuse(kernel, ZOO_ARGUMENT_ERROR, "zoo_argument_bytes: the place for the bytes is NULL");
    if (!argument) return refuse(kernel, ZOO_ARGUMENT_ERROR, "zoo_argument_bytes: the name of the argument is NULL");
    int asked = argument_index(kernel, argument);
    if (asked < 0 || !kernel->arguments[asked].forms)
        return refuse(kernel, ZOO_ARGUMENT_ERROR, "no array argument is named '%s'", argument);
    if ((status = begin_call(&call, device, kernel, arguments, count, asked))) return status;
    int64_t measured = 0;
    const array_state *array = &call.arrays[asked];
    if (!array->present && (status = measure_expected(&call, &measured))) return status;
    if (array->present && !array->empty) measured = span_of(array).bytes;
    if ((status = check_constraints(&call, false))) return status;
    for (int index = 0; index < kernel->argument_count; index++) {
        const array_state *given = &call.arrays[index];
        bool open = false;
        for (int axis = 0; given->present && axis < given->dimensions; axis++) open |= is_open(&call, given->form->shape[axis]);
        if (given->present && !open && (status = check_same(&call, index, "", given->form->shape, given->shape))) return status;
    }
    if ((status = check_constraints(&call, true))) return status;
    *bytes = measured;
    return ZOO_OK;
}

zoo_driver_function zoo_driver(const char *symbol)
{
    void *found = symbol && !forked && driver_process() ? dlsym(driver.library, symbol) : NULL;
    zoo_driver_function function;
    memcpy(&function, &found, sizeof found);
    return function;
}
