// What only the driver has: contexts, modules and tensor maps. Its functions that equal the runtime's are second names of those.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

EXPORT int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }

EXPORT int cuDeviceGet(int *handle, int number)
{
    *handle = 0;
    return number ? INVALID_DEVICE : SUCCESS;
}

EXPORT int cuDeviceGetName(char *name, int size, int number)
{
    if (number || size < 1) return INVALID_DEVICE;
    snprintf(name, (size_t)size, "%s", device()->name);
    return SUCCESS;
}

EXPORT int cuDeviceTotalMem_v2(size_t *size, int number)
{
    *size = device()->memory;
    return number ? INVALID_DEVICE : SUCCESS;
}

// ---- contexts: there is one
static char context;
static void *current;

EXPORT int cuDevicePrimaryCtxRetain(void **handle, int number)
{
    *handle = &context;
    return number ? INVALID_DEVICE : SUCCESS;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int number) { return number ? INVALID_DEVICE : SUCCESS; }

EXPORT int cuCtxCreate_v2(void **handle, unsigned flags, int number)
{
    (void)flags;
    *handle = current = &context;
    return number ? INVALID_DEVICE : SUCCESS;
}
EXPORT int cuCtxCreate_v4(void **handle, void *parameters, unsigned flags, int number)
{
    (void)parameters;
    return cuCtxCreate_v2(handle, flags, number);
}
EXPORT int cuCtxDestroy_v2(void *handle) { return handle == &context ? SUCCESS : INVALID_VALUE; }
EXPORT int cuCtxSetCurrent(void *handle) { return current = handle, SUCCESS; }
SAME(cuCtxPushCurrent_v2, cuCtxSetCurrent);
EXPORT int cuCtxGetCurrent(void **handle) { return *handle = current, SUCCESS; }
SAME(cuCtxPopCurrent_v2, cuCtxGetCurrent);

// ---- modules
EXPORT int cuModuleLoadData(uint64_t **module, const void *image)
{
    *module = malloc(sizeof **module);
    return add_module(image, *module);
}

EXPORT int cuModuleLoadDataEx(uint64_t **module, const void *image, unsigned count, int *options, void **values)
{
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}
SAME(cuModuleLoadFatBinary, cuModuleLoadData);

EXPORT int cuModuleLoad(uint64_t **module, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 301;  // CUDA_ERROR_FILE_NOT_FOUND
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *image = calloc(1, size + 1);
    size = fread(image, 1, size, file);
    fclose(file);
    int error = cuModuleLoadData(module, image);
    free(image);
    return error;
}
EXPORT int cuModuleUnload(uint64_t *module) { return module == NULL ? INVALID_HANDLE : SUCCESS; }

EXPORT int cuModuleGetFunction(struct function **function, uint64_t *module, const char *name)
{
    *function = add_function(NULL, strdup(name), *module);
    int error = resolved(*function);
    return error == INVALID_FUNCTION ? NOT_FOUND : error;
}

EXPORT int cuModuleGetGlobal_v2(void **address, size_t *size, uint64_t *module, const char *name)
{
    struct message answer = ask((struct message){VARIABLE, strlen(name), {*module}}, name, NULL, 0);
    if (answer.what) return NOT_FOUND;
    if (address != NULL) *address = (void *)answer.argument[0];
    if (size != NULL) *size = answer.argument[1];
    return SUCCESS;
}

extern int cudaFuncSetAttribute(const void *handle, int attribute, int value);
EXPORT int cuFuncSetAttribute(void *handle, int attribute, int value) { return cudaFuncSetAttribute(handle, attribute, value); }
EXPORT int cuFuncSetCacheConfig(void *handle, int configuration)
{
    (void)handle, (void)configuration;
    return SUCCESS;
}

// ---- tensor maps
EXPORT int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides,
                                  const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill)
{
    if (rank < 1 || rank > 5) return INVALID_VALUE;
    uint64_t numbers[20] = {0};  // of each dimension: elements, stride of the next, box, step
    for (unsigned i = 0; i < rank; ++i) {
        numbers[4 * i] = dims[i];
        numbers[4 * i + 1] = i + 1 < rank ? strides[i] : 0;
        numbers[4 * i + 2] = box[i];
        numbers[4 * i + 3] = steps[i];
    }
    struct message request = {
        TENSOR_MAP,
        sizeof numbers,
        {(uint64_t)type, rank, (uint64_t)address, (uint64_t)interleave, (uint64_t)swizzle, (uint64_t)promotion, (uint64_t)fill}};
    return (int)ask(request, numbers, map, 128).what;
}

// mode: of im2col.py's MODES. A corner is given for each of W, H and D, or for W alone in a wide mode.
static int encode_im2col(void *map, int type, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides, const int *lower,
                         const int *upper, unsigned corners, unsigned channels, unsigned pixels, const unsigned *steps, int interleave,
                         unsigned mode, int swizzle, int promotion, int fill)
{
    if (rank < 3 || rank > 5) return INVALID_VALUE;
    int64_t numbers[25] = {0};  // of each dimension: elements, stride of the next, step, corners of the next
    for (unsigned i = 0; i < rank; ++i) {
        numbers[5 * i] = (int64_t)dims[i];
        numbers[5 * i + 1] = i + 1 < rank ? (int64_t)strides[i] : 0;
        numbers[5 * i + 2] = steps[i];
        numbers[5 * i + 3] = i < corners ? lower[i] : 0;
        numbers[5 * i + 4] = i < corners ? upper[i] : 0;
    }
    struct message request = {IM2COL_MAP,
                              sizeof numbers,
                              {(uint64_t)type, rank, (uint64_t)address, (uint64_t)interleave, (uint64_t)swizzle, (uint64_t)promotion,
                               (uint64_t)fill, channels, pixels, mode}};
    return (int)ask(request, numbers, map, 128).what;
}

EXPORT int cuTensorMapEncodeIm2col(void *map, int type, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides,
                                   const int *lower, const int *upper, unsigned channels, unsigned pixels, const unsigned *steps,
                                   int interleave, int swizzle, int promotion, int fill)
{
    return encode_im2col(map, type, rank, address, dims, strides, lower, upper, rank - 2, channels, pixels, steps, interleave, 0, swizzle,
                         promotion, fill);
}

EXPORT int cuTensorMapEncodeIm2colWide(void *map, int type, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides,
                                       int lower, int upper, unsigned channels, unsigned pixels, const unsigned *steps, int interleave,
                                       int mode, int swizzle, int promotion, int fill)
{
    if (mode < 0 || mode > 1) return INVALID_VALUE;
    return encode_im2col(map, type, rank, address, dims, strides, &lower, &upper, 1, channels, pixels, steps, interleave,
                         1 + (unsigned)mode, swizzle, promotion, fill);
}
