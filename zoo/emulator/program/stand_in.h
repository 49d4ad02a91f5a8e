// A stand-in for the CUDA runtime and driver: programs that are started by `zoo emulate PROGRAM` call these functions in place of NVIDIA's.
//
//   program --cuda*, cu*--> device.c  memory.c  arrays.c  objects.c  streams.c  launches.c  driver.c --ask--> connection.c ==socket==> zoo/emulator/program/requests.py
//
// Device memory is the emulator's. Managed and pinned memory is mapped here, at the address that it has on the device, and copied around each
// launch. An operation of a stream runs when it is enqueued, unless the stream is captured: then a graph keeps it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define SAME(name, as) extern EXPORT __typeof__(as) name __attribute__((alias(#as)))  // two names of one function

// Runtime and driver share the numbers of errors, but for INVALID_CONFIGURATION.
enum error {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    MEMORY_ALLOCATION = 2,
    INVALID_CONFIGURATION = 9,
    INVALID_SYMBOL = 13,
    INVALID_FUNCTION = 98,
    INVALID_DEVICE = 101,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    LAUNCH_FAILURE = 719,
    TOO_LARGE = 720,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

// The requests, in the order of requests.py.
enum request {
    REFUSE,
    DEVICE,
    ALLOCATE,
    FREE,
    WRITE,
    READ,
    COPY,
    FILL,
    MODULE,
    FUNCTION,
    VARIABLE,
    LAUNCH,
    SET_FUNCTION,
    FUNCTION_FACTS,
    OCCUPANCY,
    TENSOR_MAP,
    NOTE,
    IM2COL_MAP,
    TEXTURE,
    SURFACE,
    DROP,
    SET_STACK,
};

#define ARGUMENTS 12
struct message {
    uint64_t what;  // a request; in an answer an error
    uint64_t size;  // of the bytes that follow
    uint64_t argument[ARGUMENTS];
};

// Sends a request with its bytes. The answer's bytes go to `room`, which has as many as the request says that it wants, or are dropped.
struct message ask(struct message request, const void* bytes, void* room, size_t size);
void hold(void);  // one thread at a time, which may hold more than once
void let_go(void);
_Noreturn void refuse(const char* format, ...);  // ends the program; the emulator prints the sentence
void note(const char* format, ...);
int done(int error);  // what a function of the runtime returns: the error, remembered for cudaGetLastError

struct device {
    char name[256];
    uint64_t memory;
    int32_t attributes[160];  // by the driver's numbers
};
const struct device* device(void);

struct extent {
    unsigned x, y, z;
};

struct channels {  // as programs describe texels: bits of each channel, and a kind
    int x, y, z, w, kind;
};
struct format {
    unsigned type, channels, bytes;
};
int format_of(const struct channels* channels, struct format* format);
int format_of_driver(int number, unsigned channels, struct format* format);

struct size {
    size_t width, height, depth;  // 0: there is no such dimension
};
enum { LAYERED = 1, FOR_SURFACES = 2, CUBE = 4, FOR_GATHER = 8 };
struct array {
    char* start;
    size_t pitch, width, height, depth;  // of layers, the depth is their number
    unsigned flags;
    struct format format;
};
enum { MOST_LEVELS = 16 };
struct mipmaps {
    struct array* levels[MOST_LEVELS];
    unsigned count;
};
static inline size_t rows_of(const struct array* array) { return array->height ? array->height : 1; }
static inline size_t slices_of(const struct array* array) { return array->depth ? array->depth : 1; }

struct function {
    const void* host;  // the address that the program launches it by
    const char* name;
    uint64_t module, id;
    uint64_t bytes, parameters;  // of the parameter block
    uint32_t (*layout)[2];       // offset and size of each parameter
    struct function* next;
};
struct function* function_of(const void* handle);  // NULL where nobody registered it
struct function* add_function(const void* host, const char* name, uint64_t module);
int resolved(struct function* function);
int add_module(const void* image, uint64_t* module);

struct launch {
    struct function* function;
    struct extent grid, block, cluster;  // a cluster of 0: none is asked for
    size_t shared;
    int cooperative;
    const void* parameters;
};

struct operation {
    enum { COPIES, FILLS, LAUNCHES, CALLS } kind;
    void* to;
    const void* from;
    size_t size, count;  // of a fill: the bytes of an element and how many
    unsigned value;
    struct launch launch;
    void (*function)(void*);
    void* data;
    struct operation* next;
};

struct stream;
int enqueue(struct stream* stream, struct operation operation);
int copy(void* to, const void* from, size_t size);
int fill(void* to, unsigned value, size_t width, size_t count);
int run(const struct launch* launch);
int cudaMalloc(void** pointer, size_t size);
int cudaMallocManaged(void** pointer, size_t size, unsigned flags);
