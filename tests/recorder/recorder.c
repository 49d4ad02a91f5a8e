/* A stand-in for libcuda.so.1 that needs no GPU and writes down what it was asked to launch.
 *
 * It serves the Python loader (through cuda-bindings, which asks cuGetProcAddress for everything) and zoo.c alike, and is
 * stricter than a driver: whatever a careful caller would never do (a dead stream, a foreign context, memory nobody
 * allocated, a cubin of another architecture) fails, and leaves a line {"fault": ...} in the log besides.
 *
 * Environment
 *   ZOO_RECORDER_DEVICES         "9.0:132,9.0:78@NVIDIA H20@1980000@2619000@6144": compute capability and multiprocessors, then its name, clock
 *                                and memory's clock in kHz, and width of the memory bus, for another chip than "Recorder 9.0" with an H200's;
 *                                empty for none; default 9.0:132
 *   ZOO_RECORDER_LOG             a file; each launch appends one JSON line
 *   ZOO_RECORDER_TRACE           "1": every call appends {"call": name} too
 *   ZOO_RECORDER_FAIL            "cuLaunchKernelEx=719,cuLibraryLoadData=200@2,*=999@40": results to give always, or on the nth call;
 *                                "*" counts the calls of all functions together
 *   ZOO_RECORDER_SLOW            "cuLibraryLoadData=300": a function that takes so many milliseconds longer
 *   ZOO_RECORDER_DRIVER_VERSION  default 13000
 * Functions beyond the driver's: zoo_recorder_fail, zoo_recorder_recover, zoo_recorder_calls, zoo_recorder_live, zoo_recorder_set_capture.
 *
 * Device memory is host memory. Nothing is computed: a launch checks its kernel, shape and parameters and is logged.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct library *CUlibrary;
typedef struct kernel *CUkernel;
typedef struct function *CUfunction;
typedef struct event *CUevent;
typedef struct graph *CUgraph;
typedef struct graph *CUgraphExec;

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_OUT_OF_RESOURCES = 701,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_IMPLICIT = 906,
    INVALID_CLUSTER_SIZE = 912
};

static const struct {
    CUresult result;
    const char *name, *words;
} results[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "API call is not supported in the installed CUDA driver"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

/* ---- state: one mutex guards all of it ---- */

enum { MAX_DEVICES = 16, MAX_DEPTH = 64, SHARED_DEFAULT = 48 << 10, SHARED_OPT_IN = 227 << 10, SHARED_RESERVED = 1 << 10 };

struct context {
    int device;
    int retained;
};
struct stream {
    struct context *context;
    unsigned flags;
    int status, mode; /* CUstreamCaptureStatus: 0 none, 1 active, 2 invalidated; CUstreamCaptureMode: 0 global, 1 thread, 2 relaxed */
    pthread_t thread;
    struct graph *graph;
    struct stream *next;
};
struct graph {
    char **lines;
    size_t count;
};
struct parameter {
    size_t offset, size;
};
struct kernel {
    char *name;
    struct library *library;
    struct parameter *parameters;
    size_t parameter_count, parameter_bytes;
    size_t static_shared;
    int max_threads;
    int dynamic_shared[MAX_DEVICES];
    int wide_cluster[MAX_DEVICES];
    struct kernel *next;
};
struct function {
    struct kernel *kernel;
    int device;
    struct function *next;
};
struct library {
    int major, minor;
    bool family;
    struct kernel *kernels;
    unsigned count;
    bool loaded;
    struct library *next;
};
struct event {
    struct timespec time;
    bool recorded;
    struct event *next;
};
struct allocation {
    uintptr_t address;
    size_t bytes;
    int device;
    struct allocation *next;
};
struct failure {
    char name[64];
    CUresult result;
    long nth;
    struct failure *next;
};
struct call {
    const char *name;
    long count;
    struct call *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int device_count = -1;
static struct device {
    int major, minor, multiprocessors;
    char name[64];
    int clock, memory_clock, memory_bits;
} devices[MAX_DEVICES];
static struct context contexts[MAX_DEVICES];
static struct stream default_streams[MAX_DEVICES]; /* handles 0, 1 and 2 */
static struct stream *streams;
static struct library *libraries;
static struct function *functions;
static struct event *events;
static struct allocation *allocations;
static struct failure *failures;
static struct call *calls;
static long all_calls;
static pid_t initialised_by;
static _Thread_local struct context *stack[MAX_DEPTH];
static _Thread_local int depth;
static _Thread_local int capture_mode;

static void unlock(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&mutex);
}
#define LOCKED __attribute__((cleanup(unlock))) int lock_ = pthread_mutex_lock(&mutex); (void)lock_

static void log_line(const char *line)
{
    const char *path = getenv("ZOO_RECORDER_LOG");
    if (!path || !*path) return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (file < 0) {
        perror(path);
        abort();
    }
    if (write(file, line, strlen(line)) < 0) {
        perror(path);
        abort();
    }
    close(file);
}

static CUresult fault(CUresult result, const char *format, ...)
{
    char words[512], line[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    snprintf(line, sizeof line, "{\"fault\": \"%s\", \"result\": %d}\n", words, result);
    log_line(line);
    return result;
}

static void read_environment(void)
{
    const char *text = getenv("ZOO_RECORDER_DEVICES");
    if (!text) text = "9.0:132";
    device_count = 0;
    while (*text && device_count < MAX_DEVICES) {
        struct device *device = &devices[device_count];
        int length, length_of_chip = 0;
        if (sscanf(text, "%d.%d:%d%n", &device->major, &device->minor, &device->multiprocessors, &length) != 3) {
            fprintf(stderr, "recorder: cannot read ZOO_RECORDER_DEVICES at '%s'\n", text);
            abort();
        }
        snprintf(device->name, sizeof device->name, "Recorder %d.%d", device->major, device->minor);
        device->clock = 1980000;
        device->memory_clock = 3201000;
        device->memory_bits = 6144;
        text += length;
        sscanf(text, "@%63[^@]@%d@%d@%d%n", device->name, &device->clock, &device->memory_clock, &device->memory_bits, &length_of_chip);
        text += length_of_chip;
        contexts[device_count].device = device_count;
        default_streams[device_count].context = &contexts[device_count];
        device_count++;
        if (*text == ',') text++;
    }
    for (text = getenv("ZOO_RECORDER_FAIL"); text && *text;) {
        struct failure *failure = calloc(1, sizeof *failure);
        int length;
        if (sscanf(text, "%63[A-Za-z0-9_*]=%d%n", failure->name, &failure->result, &length) != 2) {
            fprintf(stderr, "recorder: cannot read ZOO_RECORDER_FAIL at '%s'\n", text);
            abort();
        }
        text += length;
        if (*text == '@') failure->nth = strtol(text + 1, (char **)&text, 10);
        if (*text == ',') text++;
        failure->next = failures;
        failures = failure;
    }
}

/* Waits as ZOO_RECORDER_SLOW says, without the lock: what another thread, or a child forked meanwhile, does goes on. */
static void be_slow(const char *name)
{
    const char *text = getenv("ZOO_RECORDER_SLOW");
    size_t length = strlen(name);
    if (!text || strncmp(text, name, length) || text[length] != '=') return;
    usleep((useconds_t)atoi(text + length + 1) * 1000);
}

static CUresult count_call(const char *name, bool needs_initialisation)
{
    LOCKED;
    if (device_count < 0) read_environment();
    struct call *call = calls;
    while (call && strcmp(call->name, name)) call = call->next;
    if (!call) {
        call = calloc(1, sizeof *call);
        call->name = name;
        call->next = calls;
        calls = call;
    }
    call->count++;
    all_calls++;
    const char *trace = getenv("ZOO_RECORDER_TRACE");
    if (trace && *trace == '1') {
        char line[128];
        snprintf(line, sizeof line, "{\"call\": \"%s\"}\n", name);
        log_line(line);
    }
    for (struct failure *failure = failures; failure; failure = failure->next) {
        bool any = !strcmp(failure->name, "*");
        if (!any && strcmp(failure->name, name)) continue;
        if (failure->nth == 0 || failure->nth == (any ? all_calls : call->count)) return failure->result;
    }
    if (needs_initialisation && initialised_by != getpid()) return NOT_INITIALIZED; /* a fork loses the driver */
    return OK;
}

static CUresult enter(const char *name, bool needs_initialisation)
{
    CUresult result = count_call(name, needs_initialisation);
    be_slow(name);
    return result;
}
#define ENTER(name) do { CUresult entered_ = enter(#name, true); if (entered_) return entered_; } while (0)
#define ENTER_EARLY(name) do { CUresult entered_ = enter(#name, false); if (entered_) return entered_; } while (0)
#define API __attribute__((visibility("default")))

/* A call that would wait for or change the device is refused while a capture forbids it, and spoils that capture. */
static CUresult unsafe_under_capture(const char *name)
{
    CUresult result = OK;
    for (struct stream *stream = streams; stream; stream = stream->next) {
        bool mine = stream->status && pthread_equal(stream->thread, pthread_self());
        bool forbids = stream->status && stream->mode != 2 && capture_mode != 2 && (mine || (stream->mode == 0 && capture_mode == 0));
        if (forbids) {
            stream->status = 2;
            result = fault(CAPTURE_UNSUPPORTED, "%s while a stream is being captured", name);
        }
    }
    return result;
}
#define SAFE(name) do { CUresult unsafe_ = unsafe_under_capture(#name); if (unsafe_) return unsafe_; } while (0)

static struct context *current(void) { return depth ? stack[depth - 1] : NULL; }
static bool live_context(const struct context *context)
{ return context >= contexts && context < contexts + device_count && context->retained > 0; }
#define CURRENT(name) struct context *context_ = current(); \
    if (!live_context(context_)) return fault(INVALID_CONTEXT, #name " without a live current context")

static struct stream *find_stream(CUstream handle, const char *name)
{
    if ((uintptr_t)handle <= 2) return current() ? &default_streams[current()->device] : NULL;
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (stream == handle) return stream;
    fault(INVALID_HANDLE, "%s on a stream that does not exist", name);
    return NULL;
}

static struct allocation *find_allocation(CUdeviceptr address)
{
    for (struct allocation *allocation = allocations; allocation; allocation = allocation->next)
        if (address >= allocation->address && address - allocation->address < allocation->bytes) return allocation;
    return NULL;
}

static CUresult check_range(CUdeviceptr address, size_t bytes, const char *name)
{
    if (bytes == 0) return OK;
    struct allocation *allocation = find_allocation(address);
    if (!allocation || allocation->address + allocation->bytes - address < bytes)
        return fault(INVALID_VALUE, "%s: %zu bytes at %#llx are not device memory", name, bytes, (unsigned long long)address);
    return OK;
}

/* ---- beyond the driver ---- */

API void zoo_recorder_fail(const char *name, CUresult result, long nth)
{
    LOCKED;
    if (device_count < 0) read_environment();
    struct failure *failure = calloc(1, sizeof *failure);
    snprintf(failure->name, sizeof failure->name, "%s", name);
    failure->result = result;
    failure->nth = nth;
    failure->next = failures;
    failures = failure;
}

API void zoo_recorder_recover(void)
{
    LOCKED;
    while (failures) {
        struct failure *next = failures->next;
        free(failures);
        failures = next;
    }
}

/* How often a function was called; "*" is all of them. */
API long zoo_recorder_calls(const char *name)
{
    LOCKED;
    if (!strcmp(name, "*")) return all_calls;
    for (struct call *call = calls; call; call = call->next)
        if (!strcmp(call->name, name)) return call->count;
    return 0;
}

API int zoo_recorder_set_capture(CUstream handle, int status)
{
    LOCKED;
    struct stream *stream = find_stream(handle, "zoo_recorder_set_capture");
    if (!stream) return INVALID_HANDLE;
    stream->status = status;
    stream->mode = 0;
    stream->thread = pthread_self();
    return OK;
}

/* How many of a kind the program holds: "allocations", "streams", "libraries", "contexts" (times a primary one was retained and not
 * released), "events", and of the calling thread "pushed" contexts and "relaxed" (1 while it is in another capture mode than the default). */
API long zoo_recorder_live(const char *kind)
{
    LOCKED;
    long count = 0;
    if (!strcmp(kind, "pushed")) return depth;
    if (!strcmp(kind, "relaxed")) return capture_mode != 0;
    if (!strcmp(kind, "allocations"))
        for (struct allocation *one = allocations; one; one = one->next) count++;
    else if (!strcmp(kind, "streams"))
        for (struct stream *one = streams; one; one = one->next) count++;
    else if (!strcmp(kind, "libraries"))
        for (struct library *one = libraries; one; one = one->next) count += one->loaded;
    else if (!strcmp(kind, "contexts"))
        for (int device = 0; device < device_count; device++) count += contexts[device].retained;
    else if (!strcmp(kind, "events"))
        for (struct event *one = events; one; one = one->next) count++;
    else count = -1;
    return count;
}

/* ---- initialisation and devices ---- */

API CUresult cuInit(unsigned flags)
{
    ENTER_EARLY(cuInit);
    LOCKED;
    if (flags) return INVALID_VALUE;
    if (device_count == 0) return NO_DEVICE;
    if (initialised_by && initialised_by != getpid()) return NOT_INITIALIZED;
    initialised_by = getpid();
    return OK;
}

API CUresult cuDriverGetVersion(int *version)
{
    ENTER_EARLY(cuDriverGetVersion);
    const char *text = getenv("ZOO_RECORDER_DRIVER_VERSION");
    *version = text && *text ? atoi(text) : 13000;
    return OK;
}

API CUresult cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount);
    *count = device_count;
    return OK;
}

static bool valid_device(CUdevice device) { return device >= 0 && device < device_count; }

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet);
    if (!valid_device(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    ENTER(cuDeviceGetName);
    if (!valid_device(device)) return INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", devices[device].name);
    return OK;
}

API CUresult cuDeviceGetPCIBusId(char *bus, int length, CUdevice device)
{
    ENTER(cuDeviceGetPCIBusId);
    if (!valid_device(device)) return INVALID_DEVICE;
    snprintf(bus, (size_t)length, "0000:%02x:00.0", (unsigned)device + 1);
    return OK;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    ENTER(cuDeviceTotalMem);
    if (!valid_device(device)) return INVALID_DEVICE;
    *bytes = (size_t)1 << 37;
    return OK;
}

API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device)
{
    ENTER(cuDeviceGetUuid);
    if (!valid_device(device)) return INVALID_DEVICE;
    memset(uuid, 0, 16);
    uuid[15] = (unsigned char)(device + 1);
    return OK;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    ENTER(cuDeviceGetAttribute);
    if (!valid_device(device)) return INVALID_DEVICE;
    switch (attribute) {
    case 1: *value = 1024; return OK; /* threads of a block */
    case 2:
    case 3: *value = 1024; return OK;
    case 4: *value = 64; return OK;
    case 5: *value = 2147483647; return OK;
    case 6:
    case 7: *value = 65535; return OK;
    case 8: *value = SHARED_DEFAULT; return OK;
    case 10: *value = 32; return OK;                    /* warp */
    case 13: *value = devices[device].clock; return OK; /* kHz */
    case 16: *value = devices[device].multiprocessors; return OK;
    case 20: *value = 0; return OK;          /* compute mode: default */
    case 33: *value = device + 1; return OK; /* PCI bus, device, domain */
    case 34:
    case 50: *value = 0; return OK;
    case 36: *value = devices[device].memory_clock; return OK; /* memory clock */
    case 37: *value = devices[device].memory_bits; return OK;  /* memory bus */
    case 38: *value = 8 << 20; return OK;                      /* L2: what `zoo bench` times is larger */
    case 39: *value = 2048; return OK;                         /* threads of a multiprocessor */
    case 41: *value = 1; return OK;                            /* unified addressing */
    case 75: *value = devices[device].major; return OK;
    case 76: *value = devices[device].minor; return OK;
    case 81: *value = SHARED_OPT_IN + SHARED_RESERVED; return OK;
    case 97: *value = SHARED_OPT_IN; return OK;
    case 111: *value = SHARED_RESERVED; return OK;
    case 120:
    case 127: *value = devices[device].major >= 9; return OK; /* clusters, tensor maps */
    default: return fault(INVALID_VALUE, "cuDeviceGetAttribute: attribute %d is not recorded", attribute);
    }
}

/* ---- contexts ---- */

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain);
    LOCKED;
    if (!valid_device(device)) return INVALID_DEVICE;
    contexts[device].retained++;
    *context = &contexts[device];
    return OK;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRelease);
    LOCKED;
    if (!valid_device(device)) return INVALID_DEVICE;
    if (contexts[device].retained == 0) return fault(INVALID_CONTEXT, "a primary context released more often than retained");
    contexts[device].retained--;
    return OK;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    ENTER(cuDevicePrimaryCtxGetState);
    if (!valid_device(device)) return INVALID_DEVICE;
    *flags = 0;
    *active = contexts[device].retained > 0;
    return OK;
}

API CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER(cuCtxGetCurrent);
    *context = current();
    return OK;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(cuCtxSetCurrent);
    if (!context) {
        if (depth) depth--;
        return OK;
    }
    if (!live_context(context)) return fault(INVALID_CONTEXT, "cuCtxSetCurrent to a context that is not live");
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return OK;
}

API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(cuCtxPushCurrent);
    if (!live_context(context)) return fault(INVALID_CONTEXT, "cuCtxPushCurrent of a context that is not live");
    if (depth == MAX_DEPTH) return fault(INVALID_CONTEXT, "%d contexts pushed and not popped", MAX_DEPTH);
    stack[depth++] = context;
    return OK;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER(cuCtxPopCurrent);
    if (!depth) return fault(INVALID_CONTEXT, "cuCtxPopCurrent without a context");
    depth--;
    if (context) *context = stack[depth];
    return OK;
}

API CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER(cuCtxGetDevice);
    if (!current()) return INVALID_CONTEXT;
    *device = current()->device;
    return OK;
}

API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    ENTER(cuCtxGetDevice);
    if (!context) context = current();
    if (!live_context(context)) return INVALID_CONTEXT;
    *device = context->device;
    return OK;
}

API CUresult cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize);
    LOCKED;
    CURRENT(cuCtxSynchronize);
    SAFE(cuCtxSynchronize);
    return OK;
}

API CUresult cuCtxSynchronize_v2(CUcontext context)
{
    (void)context;
    return cuCtxSynchronize();
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(cuCtxGetStreamPriorityRange);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return OK;
}

/* ---- streams ---- */

API CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
    ENTER(cuStreamCreate);
    LOCKED;
    CURRENT(cuStreamCreate);
    struct stream *stream = calloc(1, sizeof *stream);
    stream->context = context_;
    stream->flags = flags;
    stream->next = streams;
    streams = stream;
    *handle = stream;
    return OK;
}

API CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(handle, flags);
}

API CUresult cuStreamDestroy_v2(CUstream handle)
{
    ENTER(cuStreamDestroy);
    LOCKED;
    for (struct stream **link = &streams; *link; link = &(*link)->next)
        if (*link == handle) {
            *link = handle->next; /* never freed, so that a stale handle is told apart from a new stream */
            return OK;
        }
    return fault(INVALID_HANDLE, "cuStreamDestroy of a stream that does not exist");
}

API CUresult cuStreamSynchronize(CUstream handle)
{
    ENTER(cuStreamSynchronize);
    LOCKED;
    CURRENT(cuStreamSynchronize);
    struct stream *stream = find_stream(handle, "cuStreamSynchronize");
    if (!stream) return INVALID_HANDLE;
    SAFE(cuStreamSynchronize);
    return OK;
}

API CUresult cuStreamQuery(CUstream handle)
{
    ENTER(cuStreamQuery);
    LOCKED;
    return find_stream(handle, "cuStreamQuery") ? OK : INVALID_HANDLE;
}

API CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    ENTER(cuStreamGetCtx);
    LOCKED;
    struct stream *stream = find_stream(handle, "cuStreamGetCtx");
    if (!stream) return (uintptr_t)handle <= 2 ? INVALID_CONTEXT : INVALID_HANDLE;
    *context = stream->context;
    return OK;
}

API CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, void **green)
{
    if (green) *green = NULL;
    return cuStreamGetCtx(handle, context);
}

API CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    CUcontext context;
    CUresult result = cuStreamGetCtx(handle, &context);
    if (!result) *device = context->device;
    return result;
}

API CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    ENTER(cuStreamGetId);
    LOCKED;
    if (!find_stream(handle, "cuStreamGetId")) return INVALID_HANDLE;
    *id = (uintptr_t)handle;
    return OK;
}

static CUresult implicit_capture(CUstream handle)
{
    /* The legacy stream waits for every blocking stream of its context; asking it anything while one is captured is refused. */
    if ((uintptr_t)handle > 1) return OK;
    for (struct stream *other = streams; other; other = other->next)
        if (other->status && !(other->flags & 1) && other->context == current()) return CAPTURE_IMPLICIT;
    return OK;
}

API CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    ENTER(cuStreamIsCapturing);
    LOCKED;
    struct stream *stream = find_stream(handle, "cuStreamIsCapturing");
    if (!stream) return (uintptr_t)handle <= 2 ? INVALID_CONTEXT : INVALID_HANDLE;
    CUresult result = implicit_capture(handle);
    if (!result) *status = stream->status;
    return result;
}

API CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    ENTER(cuStreamBeginCapture);
    LOCKED;
    struct stream *stream = find_stream(handle, "cuStreamBeginCapture");
    if (!stream) return INVALID_HANDLE;
    if ((uintptr_t)handle <= 2) return CAPTURE_UNSUPPORTED;
    if (stream->status) return INVALID_VALUE;
    stream->status = 1;
    stream->mode = mode;
    stream->thread = pthread_self();
    stream->graph = calloc(1, sizeof *stream->graph);
    return OK;
}

API CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    ENTER(cuStreamEndCapture);
    LOCKED;
    struct stream *stream = find_stream(handle, "cuStreamEndCapture");
    if (!stream) return INVALID_HANDLE;
    int status = stream->status;
    stream->status = 0;
    *graph = status == 1 ? stream->graph : NULL;
    stream->graph = NULL;
    return status == 1 ? OK : status == 2 ? CAPTURE_INVALIDATED : CAPTURE_UNMATCHED;
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode);
    int previous = capture_mode;
    capture_mode = *mode;
    *mode = previous;
    return OK;
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    ENTER(cuGraphInstantiate);
    (void)flags;
    *executable = graph;
    return graph ? OK : INVALID_VALUE;
}

API CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle)
{
    ENTER(cuGraphLaunch);
    LOCKED;
    if (!find_stream(handle, "cuGraphLaunch")) return INVALID_HANDLE;
    for (size_t index = 0; index < executable->count; index++) log_line(executable->lines[index]);
    return OK;
}

API CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    (void)executable;
    ENTER(cuGraphExecDestroy);
    return OK;
}
API CUresult cuGraphDestroy(CUgraph graph)
{
    (void)graph;
    ENTER(cuGraphDestroy);
    return OK;
}

/* ---- memory ---- */

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    ENTER(cuMemAlloc);
    LOCKED;
    CURRENT(cuMemAlloc);
    SAFE(cuMemAlloc);
    if (bytes == 0) return fault(INVALID_VALUE, "cuMemAlloc of 0 bytes");
    void *memory;
    if (posix_memalign(&memory, 512, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xA5, bytes < (1 << 20) ? bytes : 1 << 20);
    struct allocation *allocation = calloc(1, sizeof *allocation);
    allocation->address = (uintptr_t)memory;
    allocation->bytes = bytes;
    allocation->device = context_->device;
    allocation->next = allocations;
    allocations = allocation;
    *address = allocation->address;
    return OK;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(cuMemFree);
    LOCKED;
    if (address == 0) return OK;
    SAFE(cuMemFree);
    for (struct allocation **link = &allocations; *link; link = &(*link)->next)
        if ((*link)->address == address) {
            struct allocation *gone = *link;
            *link = gone->next;
            free((void *)gone->address);
            free(gone);
            return OK;
        }
    return fault(INVALID_VALUE, "cuMemFree of %#llx, which is no allocation", (unsigned long long)address);
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    if (!find_stream(stream, "cuMemAllocAsync")) return INVALID_HANDLE;
    return cuMemAlloc_v2(address, bytes);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    if (!find_stream(stream, "cuMemFreeAsync")) return INVALID_HANDLE;
    return cuMemFree_v2(address);
}

API CUresult cuMemGetInfo_v2(size_t *unused_bytes, size_t *total)
{
    ENTER(cuMemGetInfo);
    CURRENT(cuMemGetInfo);
    *unused_bytes = *total = (size_t)1 << 37;
    return OK;
}

static CUresult copy(const char *name, uint64_t to, uint64_t from, size_t bytes, bool to_device, bool from_device, bool waits)
{
    CUresult entered = enter(name, true);
    if (entered) return entered;
    LOCKED;
    if (!live_context(current())) return fault(INVALID_CONTEXT, "%s without a live current context", name);
    if (waits) {
        CUresult unsafe = unsafe_under_capture(name);
        if (unsafe) return unsafe;
    }
    CUresult result = to_device ? check_range(to, bytes, name) : OK;
    if (!result && from_device) result = check_range(from, bytes, name);
    if (!result && bytes) memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return result;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{ return copy("cuMemcpyHtoD", to, (uintptr_t)from, bytes, true, false, true); }
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{ return copy("cuMemcpyDtoH", (uintptr_t)to, from, bytes, false, true, true); }
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{ return copy("cuMemcpyDtoD", to, from, bytes, true, true, true); }
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return find_stream(stream, "cuMemcpyHtoDAsync")
               ? copy("cuMemcpyHtoDAsync", to, (uintptr_t)from, bytes, true, false, false)
               : INVALID_HANDLE;
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return find_stream(stream, "cuMemcpyDtoHAsync")
               ? copy("cuMemcpyDtoHAsync", (uintptr_t)to, from, bytes, false, true, false)
               : INVALID_HANDLE;
}
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{ return find_stream(stream, "cuMemcpyDtoDAsync") ? copy("cuMemcpyDtoDAsync", to, from, bytes, true, true, false) : INVALID_HANDLE; }

static CUresult fill(const char *name, CUdeviceptr address, uint32_t value, size_t width, size_t count)
{
    CUresult entered = enter(name, true);
    if (entered) return entered;
    LOCKED;
    if (!live_context(current())) return fault(INVALID_CONTEXT, "%s without a live current context", name);
    CUresult result = check_range(address, width * count, name);
    for (size_t index = 0; !result && index < count; index++) memcpy((char *)(uintptr_t)address + index * width, &value, width);
    return result;
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) { return fill("cuMemsetD8", to, value, 1, count); }
API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) { return fill("cuMemsetD32", to, value, 4, count); }
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{ return find_stream(stream, "cuMemsetD8Async") ? fill("cuMemsetD8Async", to, value, 1, count) : INVALID_HANDLE; }
API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{ return find_stream(stream, "cuMemsetD32Async") ? fill("cuMemsetD32Async", to, value, 4, count) : INVALID_HANDLE; }

API CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    ENTER(cuMemHostAlloc);
    (void)flags;
    return posix_memalign(memory, 512, bytes ? bytes : 1) ? OUT_OF_MEMORY : OK;
}
API CUresult cuMemAllocHost_v2(void **memory, size_t bytes) { return cuMemHostAlloc(memory, bytes, 0); }
API CUresult cuMemFreeHost(void *memory)
{
    ENTER(cuMemFreeHost);
    free(memory);
    return OK;
}

static CUresult pointer_attribute(void *data, int attribute, CUdeviceptr address, bool lenient)
{
    struct allocation *allocation = find_allocation(address);
    if (!allocation) {
        if (!lenient) return INVALID_VALUE; /* as a driver answers for memory it does not know */
        if (attribute == 9) *(int *)data = -2;
        else if (attribute == 2) *(unsigned *)data = 0;
        else if (attribute == 8) *(bool *)data = false;
        else *(void **)data = NULL;
        return OK;
    }
    switch (attribute) {
    case 1: *(CUcontext *)data = &contexts[allocation->device]; return OK;
    case 2: *(unsigned *)data = 2; return OK; /* device memory */
    case 3:
    case 4: *(CUdeviceptr *)data = address; return OK;
    case 7: *(unsigned long long *)data = allocation->address; return OK;
    case 8: *(bool *)data = false; return OK;
    case 9: *(int *)data = allocation->device; return OK;
    case 11: *(CUdeviceptr *)data = allocation->address; return OK;
    case 12: *(size_t *)data = allocation->bytes; return OK;
    default: return fault(INVALID_VALUE, "cuPointerGetAttribute: attribute %d is not recorded", attribute);
    }
}

API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address)
{
    ENTER(cuPointerGetAttribute);
    LOCKED;
    return pointer_attribute(data, attribute, address, false);
}

API CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr address)
{
    ENTER(cuPointerGetAttributes);
    LOCKED;
    for (unsigned index = 0; index < count; index++) {
        CUresult result = pointer_attribute(data[index], attributes[index], address, true);
        if (result) return result;
    }
    return OK;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    ENTER(cuMemGetAddressRange);
    LOCKED;
    struct allocation *allocation = find_allocation(address);
    if (!allocation) return NOT_FOUND;
    if (base) *base = allocation->address;
    if (bytes) *bytes = allocation->bytes;
    return OK;
}

/* ---- libraries: a cubin is an ELF of machine 190; its kernels are the sections .text.<name> ---- */

static uint64_t read_bytes(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int index = 0; index < bytes; index++) value |= (uint64_t)at[index] << (8 * index);
    return value;
}

static const unsigned char *section(const unsigned char *elf, const char *name, size_t *bytes)
{
    const unsigned char *headers = elf + read_bytes(elf + 0x28, 8);
    unsigned count = (unsigned)read_bytes(elf + 0x3C, 2), names = (unsigned)read_bytes(elf + 0x3E, 2);
    const char *strings = (const char *)elf + read_bytes(headers + 64 * names + 0x18, 8);
    for (unsigned index = 0; index < count; index++) {
        const unsigned char *header = headers + 64 * index;
        if (!strcmp(strings + read_bytes(header, 4), name)) {
            *bytes = read_bytes(header + 0x20, 8);
            return elf + read_bytes(header + 0x18, 8);
        }
    }
    *bytes = 0;
    return NULL;
}

static void read_kernel(struct kernel *kernel, const unsigned char *elf)
{
    char name[512];
    size_t bytes;
    snprintf(name, sizeof name, ".nv.shared.%s", kernel->name);
    section(elf, name, &bytes);
    kernel->static_shared = bytes >= SHARED_RESERVED ? bytes - SHARED_RESERVED : bytes; /* from sm_90 on, the system's first KiB */
    for (int device = 0; device < MAX_DEVICES; device++) kernel->dynamic_shared[device] = SHARED_DEFAULT - (int)kernel->static_shared;
    kernel->max_threads = 1024;
    snprintf(name, sizeof name, ".nv.info.%s", kernel->name);
    const unsigned char *info = section(elf, name, &bytes), *end = info + bytes;
    kernel->parameters = calloc(256, sizeof *kernel->parameters);
    while (info && info < end) {
        /* format, attribute, then a 16-bit value, or for format 4 the bytes that follow */
        unsigned format = info[0], attribute = info[1];
        size_t value = read_bytes(info + 2, 2);
        const unsigned char *payload = info + 4;
        if (format == 4 && attribute == 0x17) { /* parameter: index, ordinal, offset, size in the upper 14 bits */
            size_t ordinal = read_bytes(payload + 4, 2);
            kernel->parameters[ordinal].offset = read_bytes(payload + 6, 2);
            kernel->parameters[ordinal].size = read_bytes(payload + 8, 4) >> 18;
            if (ordinal + 1 > kernel->parameter_count) kernel->parameter_count = ordinal + 1;
        }
        if (attribute == 0x19) kernel->parameter_bytes = value;
        if (format == 4 && attribute == 0x05)
            kernel->max_threads = (int)(read_bytes(payload, 4) * read_bytes(payload + 4, 4) * read_bytes(payload + 8, 4));
        info += 4 + (format == 4 ? value : 0);
    }
}

API CUresult cuLibraryLoadData(CUlibrary *handle, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
                               void **option_values, unsigned option_count)
{
    ENTER(cuLibraryLoadData);
    LOCKED;
    (void)jit, (void)jit_values, (void)options, (void)option_values;
    if (jit_count || option_count) return fault(INVALID_VALUE, "cuLibraryLoadData with options: a cubin needs none");
    SAFE(cuLibraryLoadData);
    const unsigned char *elf = code;
    if (memcmp(elf, "\177ELF\2\1", 6) || read_bytes(elf + 0x12, 2) != 190)
        return fault(INVALID_IMAGE, "cuLibraryLoadData of something that is not a cubin");
    struct library *library = calloc(1, sizeof *library);
    unsigned flags = (unsigned)read_bytes(elf + 0x30, 4);
    unsigned version = elf[8] >= 8 ? flags >> 8 & 0xFF : flags & 0xFF; /* the ABI's eighth version moved it */
    library->major = (int)version / 10;
    library->minor = (int)version % 10;
    const unsigned char *headers = elf + read_bytes(elf + 0x28, 8);
    unsigned count = (unsigned)read_bytes(elf + 0x3C, 2), names = (unsigned)read_bytes(elf + 0x3E, 2);
    const char *strings = (const char *)elf + read_bytes(headers + 64 * names + 0x18, 8);
    for (unsigned index = 0; index < count; index++) {
        const char *name = strings + read_bytes(headers + 64 * index, 4);
        if (strncmp(name, ".text.", 6)) continue;
        struct kernel *kernel = calloc(1, sizeof *kernel);
        kernel->name = strdup(name + 6);
        kernel->library = library;
        read_kernel(kernel, elf);
        kernel->next = library->kernels;
        library->kernels = kernel;
        library->count++;
    }
    library->loaded = true;
    library->next = libraries;
    libraries = library;
    *handle = library;
    return OK;
}

static struct library *find_library(CUlibrary handle)
{
    for (struct library *library = libraries; library; library = library->next)
        if (library == handle && library->loaded) return library;
    fault(INVALID_HANDLE, "a library that is not loaded");
    return NULL;
}

static struct kernel *find_kernel(const void *handle)
{
    for (struct library *library = libraries; library; library = library->next)
        for (struct kernel *kernel = library->kernels; kernel; kernel = kernel->next)
            if (kernel == handle && library->loaded) return kernel;
    return NULL;
}

static struct function *find_function(const void *handle)
{
    for (struct function *function = functions; function; function = function->next)
        if (function == handle && function->kernel->library->loaded) return function;
    return NULL;
}

API CUresult cuLibraryUnload(CUlibrary handle)
{
    ENTER(cuLibraryUnload);
    LOCKED;
    struct library *library = find_library(handle);
    if (!library) return INVALID_HANDLE;
    library->loaded = false;
    return OK;
}

API CUresult cuLibraryGetKernel(CUkernel *handle, CUlibrary library_handle, const char *name)
{
    ENTER(cuLibraryGetKernel);
    LOCKED;
    struct library *library = find_library(library_handle);
    if (!library) return INVALID_HANDLE;
    for (struct kernel *kernel = library->kernels; kernel; kernel = kernel->next)
        if (!strcmp(kernel->name, name)) {
            *handle = kernel;
            return OK;
        }
    return NOT_FOUND;
}

API CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary handle)
{
    ENTER(cuLibraryGetKernelCount);
    LOCKED;
    struct library *library = find_library(handle);
    if (!library) return INVALID_HANDLE;
    *count = library->count;
    return OK;
}

API CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary handle)
{
    ENTER(cuLibraryEnumerateKernels);
    LOCKED;
    struct library *library = find_library(handle);
    if (!library) return INVALID_HANDLE;
    struct kernel *kernel = library->kernels;
    for (unsigned index = 0; index < count && kernel; index++, kernel = kernel->next) kernels[index] = kernel;
    return OK;
}

static bool runs_on(const struct library *library, int device)
{
    /* Whether a cubin is of a family is not read here: a later minor of the same major is let through. */
    return library->major == devices[device].major && library->minor <= devices[device].minor;
}

API CUresult cuKernelGetFunction(CUfunction *handle, CUkernel kernel_handle)
{
    ENTER(cuKernelGetFunction);
    LOCKED;
    CURRENT(cuKernelGetFunction);
    struct kernel *kernel = find_kernel(kernel_handle);
    if (!kernel) return fault(INVALID_HANDLE, "cuKernelGetFunction of a kernel that does not exist");
    SAFE(cuKernelGetFunction);
    if (!runs_on(kernel->library, context_->device)) {
        return fault(NO_BINARY_FOR_GPU, "%s is for %d.%d, the device is %d.%d", kernel->name, kernel->library->major,
                     kernel->library->minor, devices[context_->device].major, devices[context_->device].minor);
    }
    struct function *function = functions;
    while (function && !(function->kernel == kernel && function->device == context_->device)) function = function->next;
    if (!function) {
        function = calloc(1, sizeof *function);
        function->kernel = kernel;
        function->device = context_->device;
        function->next = functions;
        functions = function;
    }
    *handle = function;
    return OK;
}

API CUresult cuKernelGetName(const char **name, CUkernel handle)
{
    ENTER(cuKernelGetName);
    LOCKED;
    struct kernel *kernel = find_kernel(handle);
    if (!kernel) return INVALID_HANDLE;
    *name = kernel->name;
    return OK;
}

static CUresult set_attribute(struct kernel *kernel, int device, int attribute, int value)
{
    if (attribute == 8) {
        if (value < 0 || value + (int)kernel->static_shared > SHARED_OPT_IN)
            return fault(INVALID_VALUE, "%s: %d bytes of dynamic shared memory", kernel->name, value);
        kernel->dynamic_shared[device] = value;
        return OK;
    }
    if (attribute == 14) {
        kernel->wide_cluster[device] = value;
        return OK;
    }
    if (attribute == 9) return OK; /* carve-out: a hint */
    return fault(INVALID_VALUE, "setting attribute %d of a kernel is not recorded", attribute);
}

static CUresult get_attribute(const struct kernel *kernel, int device, int attribute, int *value)
{
    switch (attribute) {
    case 0: *value = kernel->max_threads; return OK;
    case 1: *value = (int)kernel->static_shared; return OK;
    case 2:
    case 3: *value = 0; return OK; /* constants, local memory */
    case 6: *value = 10 * kernel->library->major + kernel->library->minor; return OK;
    case 8: *value = kernel->dynamic_shared[device]; return OK;
    case 14: *value = kernel->wide_cluster[device]; return OK;
    default: return fault(INVALID_VALUE, "attribute %d of a kernel is not recorded", attribute);
    }
}

static CUresult parameter_info(const struct kernel *kernel, size_t index, size_t *offset, size_t *size)
{
    if (index >= kernel->parameter_count) return INVALID_VALUE;
    *offset = kernel->parameters[index].offset;
    if (size) *size = kernel->parameters[index].size;
    return OK;
}

API CUresult cuKernelSetAttribute(int attribute, int value, CUkernel handle, CUdevice device)
{
    ENTER(cuKernelSetAttribute);
    LOCKED;
    struct kernel *kernel = find_kernel(handle);
    if (!kernel) return INVALID_HANDLE;
    if (!valid_device(device)) return INVALID_DEVICE;
    return set_attribute(kernel, device, attribute, value);
}

API CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel handle, CUdevice device)
{
    ENTER(cuKernelGetAttribute);
    LOCKED;
    struct kernel *kernel = find_kernel(handle);
    if (!kernel) return INVALID_HANDLE;
    if (!valid_device(device)) return INVALID_DEVICE;
    return get_attribute(kernel, device, attribute, value);
}

API CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size)
{
    ENTER(cuKernelGetParamInfo);
    LOCKED;
    struct kernel *kernel = find_kernel(handle);
    return kernel ? parameter_info(kernel, index, offset, size) : INVALID_HANDLE;
}

API CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value)
{
    ENTER(cuFuncSetAttribute);
    LOCKED;
    struct function *function = find_function(handle);
    return function ? set_attribute(function->kernel, function->device, attribute, value) : INVALID_HANDLE;
}

API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle)
{
    ENTER(cuFuncGetAttribute);
    LOCKED;
    struct function *function = find_function(handle);
    return function ? get_attribute(function->kernel, function->device, attribute, value) : INVALID_HANDLE;
}

API CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
    ENTER(cuFuncGetParamInfo);
    LOCKED;
    struct function *function = find_function(handle);
    return function ? parameter_info(function->kernel, index, offset, size) : INVALID_HANDLE;
}

API CUresult cuFuncLoad(CUfunction handle)
{
    ENTER(cuFuncLoad);
    LOCKED;
    SAFE(cuFuncLoad);
    return find_function(handle) ? OK : fault(INVALID_HANDLE, "cuFuncLoad of a function that does not exist");
}

API CUresult cuFuncIsLoaded(int *state, CUfunction handle)
{
    ENTER(cuFuncIsLoaded);
    LOCKED;
    if (!find_function(handle)) return INVALID_HANDLE;
    *state = 1;
    return OK;
}

/* ---- launches ---- */

struct attribute {
    int id;
    char pad[4];
    union {
        unsigned dimensions[3];
        int flag;
        char pad[64];
    } value;
};
struct configuration {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    struct attribute *attributes;
    unsigned attribute_count;
};
_Static_assert(sizeof(struct attribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(struct configuration) == 56, "CUlaunchConfig");

static size_t hex(char *to, const unsigned char *from, size_t bytes)
{
    for (size_t index = 0; index < bytes; index++) sprintf(to + 2 * index, "%02x", from[index]);
    return 2 * bytes;
}

static CUresult launch(const struct configuration *with, const void *handle, void **parameters, void **extra)
{
    struct function *function = find_function(handle);
    struct kernel *kernel = function ? function->kernel : find_kernel(handle); /* a kernel handle may stand for its function */
    if (!kernel) return fault(INVALID_HANDLE, "a launch of a kernel that is not loaded");
    CURRENT(cuLaunchKernel);
    int device = context_->device;
    if (function && function->device != device)
        return fault(INVALID_HANDLE, "%s: a function of device %d under a context of device %d", kernel->name, function->device, device);
    if (!runs_on(kernel->library, device)) return fault(NO_BINARY_FOR_GPU, "%s: of another architecture", kernel->name);
    struct stream *stream = find_stream(with->stream, "a launch");
    if (!stream) return INVALID_HANDLE;
    if (stream->context != context_)
        return fault(INVALID_HANDLE, "%s: a stream of device %d under a context of device %d", kernel->name, stream->context->device,
                     device);
    CUresult implicit = implicit_capture(with->stream);
    if (implicit) return implicit;
    if (stream->status == 2) return CAPTURE_INVALIDATED;

    unsigned cluster[3] = {1, 1, 1};
    int programmatic = 0;
    for (unsigned index = 0; index < with->attribute_count; index++) {
        const struct attribute *attribute = &with->attributes[index];
        if (attribute->id == 4) memcpy(cluster, attribute->value.dimensions, sizeof cluster);
        else if (attribute->id == 6) programmatic = attribute->value.flag;
        else if (attribute->id != 0) return fault(INVALID_VALUE, "%s: launch attribute %d is not recorded", kernel->name, attribute->id);
    }
    unsigned long long threads = (unsigned long long)with->block[0] * with->block[1] * with->block[2];
    if (threads == 0 || threads > 1024 || threads > (unsigned long long)kernel->max_threads || with->block[2] > 64)
        return fault(INVALID_VALUE, "%s: %llu threads, at most %d", kernel->name, threads, kernel->max_threads);
    if (!with->grid[0] || !with->grid[1] || !with->grid[2] || with->grid[0] > 2147483647u || with->grid[1] > 65535 || with->grid[2] > 65535)
        return fault(INVALID_VALUE, "%s: a grid of %u x %u x %u", kernel->name, with->grid[0], with->grid[1], with->grid[2]);
    for (int axis = 0; axis < 3; axis++)
        if (cluster[axis] == 0 || with->grid[axis] % cluster[axis])
            return fault(INVALID_CLUSTER_SIZE, "%s: a cluster of %u does not divide a grid of %u", kernel->name, cluster[axis],
                         with->grid[axis]);
    if (cluster[0] * cluster[1] * cluster[2] > (kernel->wide_cluster[device] ? 16u : 8u))
        return fault(INVALID_CLUSTER_SIZE, "%s: a cluster of %u x %u x %u", kernel->name, cluster[0], cluster[1], cluster[2]);
    if ((long long)with->shared > kernel->dynamic_shared[device])
        return fault(INVALID_VALUE, "%s: %u bytes of dynamic shared memory, at most %d were allowed", kernel->name, with->shared,
                     kernel->dynamic_shared[device]);

    const unsigned char *buffer = NULL;
    size_t buffer_bytes = 0;
    for (void **entry = extra; entry && (uintptr_t)*entry; entry += 2) {
        if ((uintptr_t)entry[0] == 1) buffer = entry[1];
        if ((uintptr_t)entry[0] == 2) buffer_bytes = *(size_t *)entry[1];
    }
    if (kernel->parameter_count && !!parameters == !!buffer)
        return fault(INVALID_VALUE, "%s: parameters come either by pointers or in one buffer", kernel->name);
    if (buffer && buffer_bytes != kernel->parameter_bytes)
        return fault(INVALID_VALUE, "%s: a parameter buffer of %zu bytes, the cubin takes %zu", kernel->name, buffer_bytes,
                     kernel->parameter_bytes);

    size_t room = 2048 + 3 * kernel->parameter_count * 8 + 2 * 4352;
    char *line = malloc(room), *at = line;
    at += snprintf(at, 1536,
                   "{\"kernel\": \"%s\", \"device\": %d, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"cluster\": [%u, %u, %u], "
                   "\"shared\": %u, \"programmatic\": %d, \"stream\": %llu, \"capturing\": %s, \"buffer\": %s, \"parameters\": [",
                   kernel->name, device, with->grid[0], with->grid[1], with->grid[2], with->block[0], with->block[1], with->block[2],
                   cluster[0], cluster[1], cluster[2], with->shared, programmatic, (unsigned long long)(uintptr_t)with->stream,
                   stream->status ? "true" : "false", buffer ? "true" : "false");
    for (size_t index = 0; index < kernel->parameter_count; index++) {
        const struct parameter *parameter = &kernel->parameters[index];
        *at++ = '"';
        at += hex(at, buffer ? buffer + parameter->offset : parameters[index], parameter->size);
        at += sprintf(at, index + 1 < kernel->parameter_count ? "\", " : "\"");
    }
    sprintf(at, "]}\n");
    if (stream->status == 1 && stream->graph) { /* a captured launch runs when its graph is launched */
        stream->graph->lines = realloc(stream->graph->lines, (stream->graph->count + 1) * sizeof(char *));
        stream->graph->lines[stream->graph->count++] = line;
    } else {
        log_line(line);
        free(line);
    }
    return OK;
}

API CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const struct configuration *with)
{
    ENTER(cuOccupancyMaxActiveClusters);
    LOCKED;
    struct function *function = find_function(handle);
    if (!function) return fault(INVALID_HANDLE, "cuOccupancyMaxActiveClusters of a function that does not exist");
    if (with->attribute_count != 1 || with->attributes[0].id != 4)
        return fault(INVALID_VALUE, "cuOccupancyMaxActiveClusters without a cluster");
    unsigned size = with->attributes[0].value.dimensions[0];
    if (size > (function->kernel->wide_cluster[function->device] ? 16u : 8u)) return INVALID_CLUSTER_SIZE;
    *clusters = devices[function->device].multiprocessors / (int)size;
    return OK;
}

API CUresult cuLaunchKernelEx(const struct configuration *with, CUfunction function, void **parameters, void **extra)
{
    ENTER(cuLaunchKernelEx);
    LOCKED;
    return launch(with, function, parameters, extra);
}

API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    ENTER(cuLaunchKernel);
    LOCKED;
    struct configuration with = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream, NULL, 0};
    return launch(&with, function, parameters, extra);
}

/* ---- tensor maps: the logical record of zoo/contract/tensor_map.py, in the place of the driver's opaque one ---- */

API CUresult cuTensorMapEncodeTiled(void *map, int dtype, uint32_t rank, void *address, const uint64_t *dims, const uint64_t *strides,
                                    const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill_kind)
{
    ENTER(cuTensorMapEncodeTiled);
    static const int bits[16] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
    static const int spans[7] = {0, 32, 64, 128, 128, 128, 128};
    if ((uintptr_t)map % 64) return fault(INVALID_VALUE, "a tensor map at %p, which is not aligned to 64 bytes", map);
    if (dtype < 0 || dtype > 15 || rank < 1 || rank > 5 || swizzle < 0 || swizzle > 6 || promotion < 0 || promotion > 3 || fill_kind < 0 ||
        fill_kind > 1 || interleave != 0)
        return fault(INVALID_VALUE, "a tensor map of type %d, rank %u, interleave %d, swizzle %d, promotion %d, fill %d", dtype, rank,
                     interleave, swizzle, promotion, fill_kind);
    unsigned unit = dtype >= 14 ? 32 : 16;
    if ((uintptr_t)address % unit) return fault(INVALID_VALUE, "a tensor map of the address %p", address);
    for (uint32_t index = 0; index < rank; index++)
        if (dims[index] < 1 || dims[index] > (uint64_t)1 << 32 || box[index] < 1 || box[index] > 256 || steps[index] < 1 ||
            steps[index] > 8)
            return fault(INVALID_VALUE, "a tensor map's dimension %u", index);
    for (uint32_t index = 0; index + 1 < rank; index++)
        if (strides[index] % unit || strides[index] >> 40) return fault(INVALID_VALUE, "a tensor map's stride %u", index + 1);
    if (dtype < 14 && (box[0] * (unsigned)bits[dtype] % 128 || (swizzle && box[0] * (unsigned)bits[dtype] / 8 > (unsigned)spans[swizzle])))
        return fault(INVALID_VALUE, "a tensor map's box row of %u elements", box[0]);
    unsigned char record[128] = "zooT\1";
    record[5] = (unsigned char)dtype;
    record[6] = (unsigned char)rank;
    record[7] = (unsigned char)swizzle;
    record[8] = (unsigned char)promotion;
    record[9] = (unsigned char)fill_kind;
    uint64_t where = (uintptr_t)address, packed = 0;
    memcpy(record + 12, &where, 8);
    for (uint32_t index = 0; index < rank; index++) {
        uint32_t extent = (uint32_t)dims[index];
        uint16_t side = (uint16_t)box[index];
        if (index + 1 < rank) memcpy(record + 20 + 8 * index, &strides[index], 8);
        memcpy(record + 52 + 4 * index, &extent, 4);
        memcpy(record + 72 + 2 * index, &side, 2);
        packed |= (uint64_t)steps[index] << (4 * index);
    }
    memcpy(record + 82, &packed, 8);
    memcpy(map, record, sizeof record);
    return OK;
}

API CUresult cuTensorMapReplaceAddress(void *map, void *address)
{
    ENTER(cuTensorMapReplaceAddress);
    unsigned char *record = map;
    uint64_t where = (uintptr_t)address;
    if (memcmp(record, "zooT\1", 5)) return fault(INVALID_VALUE, "cuTensorMapReplaceAddress of something that is no tensor map");
    if (!where || where % (record[5] >= 14 ? 32 : 16)) return fault(INVALID_VALUE, "a tensor map of the address %p", address);
    memcpy(record + 12, &where, 8);
    return OK;
}

/* ---- events ---- */

API CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
    ENTER(cuEventCreate);
    LOCKED;
    CURRENT(cuEventCreate);
    (void)flags;
    struct event *event = calloc(1, sizeof *event);
    event->next = events;
    events = event;
    *handle = event;
    return OK;
}

static struct event *find_event(CUevent handle)
{
    for (struct event *event = events; event; event = event->next)
        if (event == handle) return event;
    fault(INVALID_HANDLE, "an event that does not exist");
    return NULL;
}

API CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    ENTER(cuEventRecord);
    LOCKED;
    struct event *event = find_event(handle);
    if (!event || !find_stream(stream, "cuEventRecord")) return INVALID_HANDLE;
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    event->recorded = true;
    return OK;
}

API CUresult cuEventSynchronize(CUevent handle)
{
    ENTER(cuEventSynchronize);
    LOCKED;
    SAFE(cuEventSynchronize);
    return find_event(handle) ? OK : INVALID_HANDLE;
}

API CUresult cuEventQuery(CUevent handle)
{
    ENTER(cuEventQuery);
    LOCKED;
    return find_event(handle) ? OK : INVALID_HANDLE;
}

API CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags)
{
    ENTER(cuStreamWaitEvent);
    LOCKED;
    (void)flags;
    return find_event(handle) && find_stream(stream, "cuStreamWaitEvent") ? OK : INVALID_HANDLE;
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    ENTER(cuEventElapsedTime);
    LOCKED;
    struct event *first = find_event(from), *last = find_event(to);
    if (!first || !last || !first->recorded || !last->recorded) return INVALID_HANDLE;
    *milliseconds =
        (float)((double)(last->time.tv_sec - first->time.tv_sec) * 1e3 + (double)(last->time.tv_nsec - first->time.tv_nsec) / 1e6);
    return OK;
}

API CUresult cuEventDestroy_v2(CUevent handle)
{
    ENTER(cuEventDestroy);
    LOCKED;
    for (struct event **link = &events; *link; link = &(*link)->next)
        if (*link == handle) {
            *link = handle->next;
            free(handle);
            return OK;
        }
    return INVALID_HANDLE;
}

/* ---- errors and entry points ---- */

API CUresult cuGetErrorName(CUresult result, const char **name)
{
    for (size_t index = 0; index < sizeof results / sizeof *results; index++)
        if (results[index].result == result) {
            *name = results[index].name;
            return OK;
        }
    *name = NULL;
    return INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult result, const char **words)
{
    for (size_t index = 0; index < sizeof results / sizeof *results; index++)
        if (results[index].result == result) {
            *words = results[index].words;
            return OK;
        }
    *words = NULL;
    return INVALID_VALUE;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

typedef void (*any_function)(void);
static const struct {
    const char *name;
    int since;
    any_function function;
} entries[] = {
#define ENTRY(name, since) {#name, since, (any_function)name}
#define RENAMED(name, since, function) {#name, since, (any_function)function}
    ENTRY(cuInit, 2000),
    ENTRY(cuDriverGetVersion, 2020),
    ENTRY(cuDeviceGetCount, 2000),
    ENTRY(cuDeviceGet, 2000),
    ENTRY(cuDeviceGetName, 2000),
    ENTRY(cuDeviceGetPCIBusId, 4010),
    ENTRY(cuDeviceGetAttribute, 2000),
    RENAMED(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
    RENAMED(cuDeviceGetUuid, 9020, cuDeviceGetUuid_v2),
    ENTRY(cuDevicePrimaryCtxRetain, 7000),
    RENAMED(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease_v2),
    ENTRY(cuDevicePrimaryCtxGetState, 7000),
    ENTRY(cuCtxGetCurrent, 4000),
    ENTRY(cuCtxSetCurrent, 4000),
    RENAMED(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
    RENAMED(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
    ENTRY(cuCtxGetDevice, 2000),
    RENAMED(cuCtxGetDevice, 13000, cuCtxGetDevice_v2),
    ENTRY(cuCtxSynchronize, 2000),
    RENAMED(cuCtxSynchronize, 13000, cuCtxSynchronize_v2),
    ENTRY(cuCtxGetStreamPriorityRange, 5050),
    ENTRY(cuStreamCreate, 2000),
    ENTRY(cuStreamCreateWithPriority, 5050),
    RENAMED(cuStreamDestroy, 4000, cuStreamDestroy_v2),
    ENTRY(cuStreamSynchronize, 2000),
    ENTRY(cuStreamQuery, 2000),
    ENTRY(cuStreamGetCtx, 9020),
    RENAMED(cuStreamGetCtx, 12050, cuStreamGetCtx_v2),
    ENTRY(cuStreamGetDevice, 12080),
    ENTRY(cuStreamGetId, 12000),
    ENTRY(cuStreamIsCapturing, 10000),
    RENAMED(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2),
    ENTRY(cuStreamEndCapture, 10000),
    ENTRY(cuThreadExchangeStreamCaptureMode, 10010),
    RENAMED(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags),
    ENTRY(cuGraphInstantiateWithFlags, 11040),
    ENTRY(cuGraphLaunch, 10000),
    ENTRY(cuGraphExecDestroy, 10000),
    ENTRY(cuGraphDestroy, 10000),
    RENAMED(cuMemAlloc, 3020, cuMemAlloc_v2),
    RENAMED(cuMemFree, 3020, cuMemFree_v2),
    ENTRY(cuMemAllocAsync, 11020),
    ENTRY(cuMemFreeAsync, 11020),
    RENAMED(cuMemGetInfo, 3020, cuMemGetInfo_v2),
    RENAMED(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2),
    RENAMED(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2),
    RENAMED(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2),
    RENAMED(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2),
    RENAMED(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2),
    RENAMED(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2),
    RENAMED(cuMemsetD8, 3020, cuMemsetD8_v2),
    RENAMED(cuMemsetD32, 3020, cuMemsetD32_v2),
    ENTRY(cuMemsetD8Async, 3020),
    ENTRY(cuMemsetD32Async, 3020),
    ENTRY(cuMemHostAlloc, 2020),
    RENAMED(cuMemAllocHost, 3020, cuMemAllocHost_v2),
    ENTRY(cuMemFreeHost, 2000),
    ENTRY(cuPointerGetAttribute, 4000),
    ENTRY(cuPointerGetAttributes, 7000),
    RENAMED(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2),
    ENTRY(cuLibraryLoadData, 12000),
    ENTRY(cuLibraryUnload, 12000),
    ENTRY(cuLibraryGetKernel, 12000),
    ENTRY(cuLibraryGetKernelCount, 12040),
    ENTRY(cuLibraryEnumerateKernels, 12040),
    ENTRY(cuKernelGetFunction, 12000),
    ENTRY(cuKernelGetName, 12030),
    ENTRY(cuKernelSetAttribute, 12000),
    ENTRY(cuKernelGetAttribute, 12000),
    ENTRY(cuKernelGetParamInfo, 12040),
    ENTRY(cuFuncSetAttribute, 9000),
    ENTRY(cuFuncGetAttribute, 2020),
    ENTRY(cuFuncGetParamInfo, 12040),
    ENTRY(cuFuncLoad, 12040),
    ENTRY(cuFuncIsLoaded, 12040),
    ENTRY(cuLaunchKernelEx, 11060),
    ENTRY(cuLaunchKernel, 4000),
    ENTRY(cuTensorMapEncodeTiled, 12000),
    ENTRY(cuTensorMapReplaceAddress, 12000),
    ENTRY(cuEventCreate, 2000),
    ENTRY(cuEventRecord, 2000),
    ENTRY(cuEventSynchronize, 2000),
    ENTRY(cuEventQuery, 2000),
    ENTRY(cuStreamWaitEvent, 3020),
    ENTRY(cuEventElapsedTime, 2000),
    RENAMED(cuEventDestroy, 4000, cuEventDestroy_v2),
    ENTRY(cuGetErrorName, 6000),
    ENTRY(cuGetErrorString, 6000),
    ENTRY(cuOccupancyMaxActiveClusters, 11070),
    RENAMED(cuGetProcAddress, 12000, cuGetProcAddress_v2),
};

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    (void)flags;
    if (initialised_by == getpid()) ENTER(cuGetProcAddress); /* before that it is the program's own loading */
    int best = -1;
    for (size_t index = 0; index < sizeof entries / sizeof *entries; index++)
        if (!strcmp(entries[index].name, symbol) && entries[index].since <= version) best = entries[index].since;
    *function = NULL;
    for (size_t index = 0; index < sizeof entries / sizeof *entries; index++)
        if (!strcmp(entries[index].name, symbol) && entries[index].since == best)
            memcpy(function, &entries[index].function, sizeof *function);
    if (status) *status = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{ return cuGetProcAddress_v2(symbol, function, version, flags, NULL); }
