// The emulated device, errors, and entry points by name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "stand_in.h"

static const int VERSION = 13000;

const struct device *device(void)
{
    static struct device found;
    if (found.memory == 0) ask((struct message){DEVICE, 0, {0}}, NULL, &found, sizeof found);
    return &found;
}

// ---- errors
static __thread int last_error;

int done(int error)
{
    if (error) last_error = error;
    return error;
}

EXPORT int cudaPeekAtLastError(void) { return last_error; }
EXPORT int cudaGetLastError(void)
{
    int error = last_error;
    if (error != LAUNCH_FAILURE) last_error = SUCCESS;  // a device that has failed stays failed
    return error;
}

static const struct {
    int error;
    const char *runtime, *driver, *sentence;
} errors[] = {
    {SUCCESS, "cudaSuccess", "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {MEMORY_ALLOCATION, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "", "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "", "invalid pitch argument"},
    {INVALID_SYMBOL, "cudaErrorInvalidSymbol", "", "invalid device symbol"},
    {21, "cudaErrorInvalidMemcpyDirection", "", "invalid copy direction"},
    {INVALID_FUNCTION, "cudaErrorInvalidDeviceFunction", "", "invalid device function"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {LAUNCH_FAILURE, "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {TOO_LARGE, "cudaErrorCooperativeLaunchTooLarge", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
};

static int number_of(int error)
{
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; ++i)
        if (errors[i].error == error) return (int)i;
    return -1;
}

EXPORT const char *cudaGetErrorName(int error)
{ return number_of(error) < 0 ? "unrecognized error code" : errors[number_of(error)].runtime; }
EXPORT const char *cudaGetErrorString(int error)
{ return number_of(error) < 0 ? "unrecognized error code" : errors[number_of(error)].sentence; }
EXPORT int cuGetErrorName(int error, const char **name)
{
    *name = number_of(error) < 0 ? NULL : errors[number_of(error)].driver;
    return *name == NULL ? INVALID_VALUE : SUCCESS;
}
EXPORT int cuGetErrorString(int error, const char **sentence)
{
    *sentence = number_of(error) < 0 ? NULL : errors[number_of(error)].sentence;
    return *sentence == NULL ? INVALID_VALUE : SUCCESS;
}

// ---- the device
EXPORT int cudaGetDeviceCount(int *count) { return *count = 1, done(SUCCESS); }
SAME(cuDeviceGetCount, cudaGetDeviceCount);
EXPORT int cudaGetDevice(int *number) { return *number = 0, done(SUCCESS); }
SAME(cuCtxGetDevice, cudaGetDevice);
EXPORT int cudaSetDevice(int number) { return done(number ? INVALID_DEVICE : SUCCESS); }
EXPORT int cudaInitDevice(int number, unsigned device_flags, unsigned flags)
{
    (void)device_flags, (void)flags;
    return cudaSetDevice(number);
}
EXPORT int cudaDeviceCanAccessPeer(int *can, int number, int peer)
{
    *can = 0;
    return done(number || peer ? INVALID_DEVICE : SUCCESS);
}
EXPORT int cudaDriverGetVersion(int *version) { return *version = VERSION, done(SUCCESS); }
SAME(cudaRuntimeGetVersion, cudaDriverGetVersion);
SAME(cuDriverGetVersion, cudaDriverGetVersion);

EXPORT int cudaDeviceSynchronize(void) { return last_error == LAUNCH_FAILURE ? last_error : SUCCESS; }
SAME(cuCtxSynchronize, cudaDeviceSynchronize);

EXPORT int cudaSetDeviceFlags(void) { return done(SUCCESS); }  // hints, and memory that ends with the program
SAME(cudaDeviceReset, cudaSetDeviceFlags);
SAME(cudaDeviceSetCacheConfig, cudaSetDeviceFlags);
SAME(cudaCtxResetPersistingL2Cache, cudaSetDeviceFlags);
SAME(cudaProfilerStart, cudaSetDeviceFlags);
SAME(cudaProfilerStop, cudaSetDeviceFlags);

static size_t stack_bytes = 1 << 10;

EXPORT int cudaDeviceSetLimit(int limit, size_t value)
{
    if (limit) return done(SUCCESS);  // other limits have no effect
    int error = (int)ask((struct message){SET_STACK, 0, {value}}, NULL, NULL, 0).what;
    if (error == SUCCESS) stack_bytes = value;
    return done(error);
}
SAME(cuCtxSetLimit, cudaDeviceSetLimit);
EXPORT int cudaDeviceGetLimit(size_t *value, int limit)
{
    if (limit) refuse("the program asks for the limit %d, which is not covered", limit);
    return *value = stack_bytes, done(SUCCESS);
}
SAME(cuCtxGetLimit, cudaDeviceGetLimit);

EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0, *greatest = -5;
    return done(SUCCESS);
}

EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int number)
{
    if (number) return done(INVALID_DEVICE);
    if (attribute < 1 || attribute >= (int)(sizeof device()->attributes / 4)) return done(INVALID_VALUE);
    *value = device()->attributes[attribute];
    return done(SUCCESS);
}
SAME(cuDeviceGetAttribute, cudaDeviceGetAttribute);

// The fields of cudaDeviceProp behind its memory size, in their order: numbers of attributes, negative for a size_t.
enum { MEMORY_SIZE_AT = 288 };
#define TEXTURES_2D_AND_FURTHER                                                                                                   \
    22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42, 43, 27, 28, 29, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, \
        66, 67, 68
static const short OF_CUDA_12[] = {
    -8,  12,  10,  -11, 1,   2,   3,   4,   5,
    6,   7,   13,  -9,  75,  76,  -14, -51, 15,
    16,  17,  18,  19,  20,  21,  77,  69,  TEXTURES_2D_AND_FURTHER,
    -30, 31,  32,  33,  34,  50,  35,  40,  41,
    36,  37,  38,  108, 39,  78,  79,  80,  -81,
    82,  83,  84,  85,  86,  87,  88,  89,  90,
    91,  95,  96,  -97, 100, 101, 106, 109, -111,
    99,  112, 113, 114, 115, 116, 117, 118, 119,
    121, 125, 120, 129, 0};
static const short OF_CUDA_13[] = {
    -8,  12,  10,  -11, 1,   2,   3,   4,   5,   6,   7,    -9,  75,  76,  -14, -51, 16,  18,  19,  21,  77,  TEXTURES_2D_AND_FURTHER,
    -30, 31,  32,  33,  34,  50,  35,  40,  41,  37,  38,   108, 39,  78,  79,  80,  -81, 82,  83,  84,  85,  86,
    88,  89,  90,  91,  95,  -97, 100, 101, 106, 109, -111, 99,  112, 113, 114, 115, 116, 117, 118, 119, 121, 125,
    120, 129, 130, 131, 133, 134, 0};

static int properties_of(int number, char *properties, size_t size, const short *field)
{
    if (number) return done(INVALID_DEVICE);
    const struct device *of = device();
    memset(properties, 0, size);
    memcpy(properties, of->name, sizeof of->name);
    memcpy(properties + MEMORY_SIZE_AT, &of->memory, 8);
    size_t at = MEMORY_SIZE_AT + 8;
    for (; *field; ++field) {
        size_t width = *field < 0 ? 8 : 4;
        int64_t value = of->attributes[*field < 0 ? -*field : *field];
        at = (at + width - 1) / width * width;
        memcpy(properties + at, &value, width);
        at += width;
    }
    return done(SUCCESS);
}

EXPORT int cudaGetDeviceProperties_v2(char *properties, int number) { return properties_of(number, properties, 1032, OF_CUDA_12); }
EXPORT int cudaGetDeviceProperties(char *properties, int number) { return properties_of(number, properties, 1008, OF_CUDA_13); }

// ---- entry points by name
static void *entry_point(const char *name)
{
    static const char *versions[] = {"_v4", "_v3", "_v2", ""};
    char full[160];
    for (unsigned i = 0; i < sizeof versions / sizeof *versions; ++i) {
        snprintf(full, sizeof full, "%s%s", name, versions[i]);
        void *found = dlsym(RTLD_DEFAULT, full);
        if (found != NULL) return found;
    }
    note("%s was asked for by name, and the emulator does not have it", name);
    return NULL;
}

EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version, unsigned long long flags, int *status)
{
    (void)version, (void)flags;
    *found = entry_point(name);
    if (status != NULL) *status = *found == NULL;
    return done(SUCCESS);
}

EXPORT int cudaGetDriverEntryPoint(const char *name, void **found, unsigned long long flags, int *status)
{ return cudaGetDriverEntryPointByVersion(name, found, 0, flags, status); }

EXPORT int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    cudaGetDriverEntryPointByVersion(name, found, (unsigned)version, flags, status);
    return *found == NULL ? NOT_FOUND : SUCCESS;
}
