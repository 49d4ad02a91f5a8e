// clang-format Language: C
/* SPDX-License-Identifier: Apache-2.0
 *
 * zoo: kernels compiled ahead of time, started by name on raw device pointers.
 *
 *     zoo_device *device;
 *     zoo_open(0, &device);
 *     zoo_argument arguments[] = {zoo_tensor("x", &x), zoo_tensor("q", &q), zoo_tensor("scales", &scales)};
 *     if (zoo_launch(device, "quantize.mxfp8.rows", arguments, 3, stream))
 *         fprintf(stderr, "%s\n", zoo_last_error());
 *
 * Needs no CUDA header and no CUDA library at build time: libcuda.so.1 is opened when the first device is. Nothing is
 * compiled, downloaded or cached. Every check is made before anything is enqueued. All functions may be called from any
 * thread; the calling thread's current context is what it was when a function returns. NULL where something is needed, and a
 * device or plan that is closed already, give ZOO_ARGUMENT_ERROR.
 */
#ifndef ZOO_H
#define ZOO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZOO_ABI_VERSION 1

/* Of the compiled library; compare with ZOO_ABI_VERSION when the two may come apart. */
int zoo_abi_version(void);

/* One status for each error class of the Python package, ZOO_OK, and one for a failed malloc. */
typedef enum zoo_status {
    ZOO_OK = 0,
    ZOO_INTEGRITY_ERROR = 1,      /* an embedded cubin, or a file of costs, is altered */
    ZOO_UNKNOWN_KERNEL_ERROR = 2, /* no kernel of that name */
    ZOO_ARGUMENT_ERROR = 3,       /* missing, unknown, or of the wrong kind, dtype, shape, strides, alignment or device */
    ZOO_CONSTRAINT_ERROR = 4,     /* the arguments fit each other but not what the kernel can do */
    ZOO_VARIANT_ERROR = 5,        /* no variant fits these dtypes, options and sizes */
    ZOO_ARCHITECTURE_ERROR = 6,   /* no cubin that runs on this device */
    ZOO_CAPTURE_ERROR = 7,        /* the call would load a kernel while its stream is being captured */
    ZOO_DRIVER_ERROR = 8,         /* the driver is absent or reported a failure: zoo_last_driver_status() */
    ZOO_FORK_ERROR = 9,           /* CUDA was initialised before this process was forked */
    ZOO_MEMORY_ERROR = 10         /* the host is out of memory */
} zoo_status;

/* The name of the Python class, "ArgumentError". */
const char *zoo_status_name(zoo_status status);

/* Why this thread's last failing call failed; it stays until the next failure. */
const char *zoo_last_error(void);
int zoo_last_driver_status(void); /* the CUresult of this thread's last ZOO_DRIVER_ERROR, 0 when there is no driver */

/* ---- arrays: DLPack's DLTensor. Include your dlpack.h before this header, and it is that one. ---- */

#ifndef DLPACK_DLPACK_H_
typedef struct DLDevice {
    int32_t device_type;
    int32_t device_id;
} DLDevice;
typedef struct DLDataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct DLTensor {
    void *data; /* a device address; the first element is byte_offset further */
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: contiguous */
    uint64_t byte_offset;
} DLTensor;
#endif

/* "bf16", "f16", "f32", "e4m3", "e5m2", "ue8m0", "e2m1x2", "u8", "i32", "i64"; another name gives a type every kernel refuses. */
DLDataType zoo_dtype(const char *name);

/* A contiguous array in device memory. `shape` is kept by reference. NULL for a dtype or shape is refused by the call. */
DLTensor zoo_array(void *address, int device, const char *dtype, int ndim, int64_t *shape);

/* ---- arguments of a call, by name and in any order; an absent one, a NULL tensor and a NULL choice are the same ---- */

typedef enum zoo_kind { ZOO_TENSOR = 0, ZOO_INTEGER = 1, ZOO_NUMBER = 2, ZOO_CHOICE = 3 } zoo_kind;

typedef struct zoo_argument {
    const char *name;
    zoo_kind kind;
    union {
        const DLTensor *tensor;
        int64_t integer; /* of a size; the name "multiprocessors" limits those that a persistent kernel fills */
        double number;
        const char *choice; /* of an option; the name "variant" pins a variant, for tuning */
    } value;
} zoo_argument;

static inline zoo_argument zoo_tensor(const char *name, const DLTensor *tensor)
{
    zoo_argument argument;
    argument.name = name;
    argument.kind = ZOO_TENSOR;
    argument.value.tensor = tensor;
    return argument;
}

static inline zoo_argument zoo_integer(const char *name, int64_t integer)
{
    zoo_argument argument;
    argument.name = name;
    argument.kind = ZOO_INTEGER;
    argument.value.integer = integer;
    return argument;
}

static inline zoo_argument zoo_number(const char *name, double number)
{
    zoo_argument argument;
    argument.name = name;
    argument.kind = ZOO_NUMBER;
    argument.value.number = number;
    return argument;
}

static inline zoo_argument zoo_choice(const char *name, const char *choice)
{
    zoo_argument argument;
    argument.name = name;
    argument.kind = ZOO_CHOICE;
    argument.value.choice = choice;
    return argument;
}

/* ---- devices ---- */

/* A handle, not an address: there is nothing to read behind it, and a closed one is never valid again. */
typedef struct zoo_device zoo_device;

/* Opens a GPU by its ordinal and retains its primary context, the one that the CUDA runtime and frameworks work in. Reads the file of
   measured costs that the environment variable ZOO_COSTS names. If it is damaged or of another chip, calls of kernels with measured costs are a
   ZOO_INTEGRITY_ERROR. */
zoo_status zoo_open(int ordinal, zoo_device **device);

/* Opens an arch such as "sm_90a" without a GPU or a driver, as if it had so many multiprocessors (132 in an H100 or H200, 148 in a
   B200): for tests of calls. zoo_argument_bytes, zoo_prepare and zoo_plan_describe work as on a GPU, with arrays of device 0 whose
   addresses are compared and never read. What would load or launch is a ZOO_DRIVER_ERROR, after all checks. */
zoo_status zoo_open_arch(const char *arch, int multiprocessors, zoo_device **device);

/* Gives back what zoo_open took; of the device's plans only zoo_plan_free is left. Nothing of it may still be running, and no
   other thread may be within a call for it. NULL is ignored. Whatever the status, the device is closed. */
zoo_status zoo_close(zoo_device *device);

/* The kernels that were exported. */
int zoo_kernel_count(void);
const char *zoo_kernel_name(int index); /* NULL outside 0 to count - 1 */
const char *zoo_kernel_summary(int index);

/* Loads every variant that runs on the device of the kernels that match a shell pattern ("quantize.*"). Do this before a
   graph capture: a kernel is otherwise loaded at its first launch. `loaded`, which may be NULL, gets their number. */
zoo_status zoo_load(zoo_device *device, const char *pattern, int *loaded);

/* ---- launching; `stream` is a CUstream or cudaStream_t, and NULL is the legacy default stream ---- */

zoo_status zoo_launch(zoo_device *device, const char *kernel, const zoo_argument *arguments, size_t count, void *stream);

/* A resolved and checked launch, tensor maps encoded, parameters packed; a handle as zoo_device. It holds the addresses it was made
   with. `stream` is only asked whether it is being captured, which forbids loading. */
typedef struct zoo_plan zoo_plan;
zoo_status zoo_prepare(zoo_device *device, const char *kernel, const zoo_argument *arguments, size_t count, void *stream, zoo_plan **plan);

/* Enqueues it: no allocation, no lock, no synchronisation, and no check but that plan and device are open; may be captured in a
   CUDA graph, and called from several threads at once. */
zoo_status zoo_plan_launch(const zoo_plan *plan, void *stream);
zoo_status zoo_plan_free(zoo_plan *plan); /* NULL is ignored */

typedef struct zoo_plan_shape {
    const char *variant, *arch, *symbol;
    uint32_t grid[3]; /* with a zero in it, nothing is enqueued */
    uint32_t cluster[3];
    uint32_t threads;
    uint32_t shared_bytes; /* dynamic */
} zoo_plan_shape;
zoo_plan_shape zoo_plan_describe(const zoo_plan *plan); /* zeros and NULLs for what is no plan, and zoo_last_error() */

/* The bytes that an array argument takes in this call, contiguous: pass what the kernel reads and leave out what is to be made. Passed
   too, the argument itself says its dtype and, with a shape, that shape and strides; no address of it is read. */
zoo_status zoo_argument_bytes(zoo_device *device, const char *kernel, const zoo_argument *arguments, size_t count, const char *argument,
                              int64_t *bytes);

/* An entry point of the driver that zoo opened, such as "cuMemAlloc_v2"; NULL if it has none or no device is open. */
typedef void (*zoo_driver_function)(void);
zoo_driver_function zoo_driver(const char *symbol);

#ifdef __cplusplus
}
#endif
#endif
