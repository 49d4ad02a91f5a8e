// What nvcc's code registers before main, and launches of it.
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

struct variable {
    const void *host, *address;
    const char *name;
    uint64_t module;
    size_t size;
    struct variable *next;
};
enum { MOST_PARAMETERS = 8192 };
static struct function *all_functions;
static struct variable *all_variables;

// ---- modules
struct fat_binary {  // of fatbinary_section.h
    int magic, version;
    const void *data;
    const void *const *files;  // of nvcc -rdc=true, version 2: the fat binary of each linked file, then NULL; data has no PTX
};

int add_module(const void *image, uint64_t *module)
{
    static const unsigned FAT = 0xBA55ED50, WRAPPED = 0x466243B1, ELF = 0x464C457F;
    unsigned magic;
    memcpy(&magic, image, 4);
    if (magic == WRAPPED) {
        const struct fat_binary *wrapper = image;
        if (wrapper->version == 2 && wrapper->files[1] != NULL)
            refuse(
                "the program links device code of several files or launches kernels from kernels (nvcc -rdc=true), which is not covered");
        image = wrapper->version == 2 ? wrapper->files[0] : wrapper->data;
        memcpy(&magic, image, 4);
    }
    if (magic == ELF) refuse("the program loads a cubin, and the emulator runs PTX: give it the PTX");
    uint64_t size = magic == FAT ? 16 + ((const uint64_t *)image)[1] : strlen(image);
    struct message answer = ask((struct message){MODULE, size, {0}}, image, NULL, 0);
    *module = answer.argument[0];
    return (int)answer.what;
}

EXPORT void **__cudaRegisterFatBinary(void *binary)
{
    uint64_t *module = malloc(sizeof *module);
    add_module(binary, module);
    return (void **)module;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }
EXPORT void __cudaUnregisterFatBinary(void **binary) { (void)binary; }

EXPORT void __cudaRegisterFunction(void **binary, const char *host, char *stub, const char *name)
{
    (void)stub;
    add_function(host, name, *(uint64_t *)binary);
}

EXPORT void __cudaRegisterVar(void **binary, char *host, char *address, const char *name, int external, size_t size)
{
    (void)address, (void)external;
    struct variable *variable = malloc(sizeof *variable);
    *variable = (struct variable){host, NULL, name, *(uint64_t *)binary, size, all_variables};
    all_variables = variable;
}

EXPORT void __cudaRegisterManagedVar(void **binary, void **host, char *address, const char *name)
{
    (void)binary, (void)host, (void)address;
    refuse("the variable %s is __managed__, which is not covered: use cudaMallocManaged", name);
}

// ---- variables
static int address_of(const void *host, size_t offset, size_t size, const void **address)
{
    struct variable *variable = all_variables;
    while (variable != NULL && variable->host != host) variable = variable->next;
    if (variable == NULL) return INVALID_SYMBOL;
    if (offset + size > variable->size) return INVALID_VALUE;
    if (variable->address == NULL) {
        struct message request = {VARIABLE, strlen(variable->name), {variable->module}}, answer = ask(request, variable->name, NULL, 0);
        if (answer.what) return (int)answer.what;
        variable->address = (const void *)answer.argument[0];
    }
    *address = (const char *)variable->address + offset;
    return SUCCESS;
}

EXPORT int cudaGetSymbolAddress(void **address, const void *symbol) { return done(address_of(symbol, 0, 0, (const void **)address)); }

EXPORT int cudaGetSymbolSize(size_t *size, const void *symbol)
{
    struct variable *variable = all_variables;
    while (variable != NULL && variable->host != symbol) variable = variable->next;
    if (variable != NULL) *size = variable->size;
    return done(variable != NULL ? SUCCESS : INVALID_SYMBOL);
}

EXPORT int cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset, int kind, struct stream *stream)
{
    const void *to;
    (void)kind;
    int error = address_of(symbol, offset, size, &to);
    return done(error ? error : enqueue(stream, (struct operation){.kind = COPIES, .to = (void *)to, .from = from, .size = size}));
}
EXPORT int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind)
{ return cudaMemcpyToSymbolAsync(symbol, from, size, offset, kind, NULL); }

EXPORT int cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size, size_t offset, int kind, struct stream *stream)
{
    const void *from;
    (void)kind;
    int error = address_of(symbol, offset, size, &from);
    return done(error ? error : enqueue(stream, (struct operation){.kind = COPIES, .to = to, .from = from, .size = size}));
}
EXPORT int cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, int kind)
{ return cudaMemcpyFromSymbolAsync(to, symbol, size, offset, kind, NULL); }

// ---- functions
struct function *add_function(const void *host, const char *name, uint64_t module)
{
    struct function *function = calloc(1, sizeof *function);
    hold();
    *function = (struct function){.host = host, .name = name, .module = module, .next = all_functions};
    all_functions = function;
    let_go();
    return function;
}

// A handle is the host's address of a kernel, or what cudaGetFuncBySymbol and cuModuleGetFunction made of it.
struct function *function_of(const void *handle)
{
    hold();
    struct function *function = all_functions;
    while (function != NULL && function->host != handle && function != handle) function = function->next;
    let_go();
    return function;
}

int resolved(struct function *function)
{
    if (function == NULL) return INVALID_FUNCTION;
    if (function->layout != NULL) return SUCCESS;
    uint32_t (*layout)[2] = malloc(MOST_PARAMETERS * sizeof *layout);
    struct message request = {FUNCTION, strlen(function->name), {function->module}};
    struct message answer = ask(request, function->name, layout, MOST_PARAMETERS * sizeof *layout);
    if (answer.what) return (int)answer.what;
    function->id = answer.argument[0];
    function->bytes = answer.argument[1];
    function->parameters = answer.size / sizeof *layout;
    function->layout = layout;
    return SUCCESS;
}

EXPORT int __cudaGetKernel(struct function **kernel, const void *host)
{
    *kernel = function_of(host);
    return done(*kernel != NULL ? SUCCESS : INVALID_FUNCTION);
}
SAME(cudaGetKernel, __cudaGetKernel);
SAME(cudaGetFuncBySymbol, __cudaGetKernel);

EXPORT int cudaFuncGetName(const char **name, const void *handle)
{
    struct function *function = function_of(handle);
    if (function != NULL) *name = function->name;
    return done(function != NULL ? SUCCESS : INVALID_FUNCTION);
}

EXPORT int cudaFuncSetAttribute(const void *handle, int attribute, int value)
{
    struct function *function = function_of(handle);
    int error = resolved(function);
    if (error) return done(error);
    struct message request = {SET_FUNCTION, 0, {function->id, (uint64_t)attribute, (uint64_t)value}};
    return done((int)ask(request, NULL, NULL, 0).what);
}

EXPORT int cudaFuncSetCacheConfig(void) { return done(SUCCESS); }  // hints
SAME(cudaFuncSetSharedMemConfig, cudaFuncSetCacheConfig);

// By the driver's numbers of attributes.
static int facts(const void *handle, int32_t values[17])
{
    struct function *function = function_of(handle);
    int error = resolved(function);
    if (error) return error;
    return (int)ask((struct message){FUNCTION_FACTS, 0, {function->id}}, NULL, values, 17 * sizeof *values).what;
}

struct function_attributes {
    size_t shared, constant, local;
    int threads, registers, ptx, binary, cache, dynamic, carveout, needs_cluster, width, height, depth, policy, not_portable, reserved[16];
};

EXPORT int cudaFuncGetAttributes(struct function_attributes *attributes, const void *handle)
{
    int32_t v[17] = {0};
    int error = facts(handle, v);
    *attributes = (struct function_attributes){
        v[1], v[2], v[3], v[0], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[15], v[14], {0}};
    return done(error);
}

EXPORT int cuFuncGetAttribute(int *value, int attribute, const void *handle)
{
    int32_t values[17] = {0};
    if (attribute < 0 || attribute >= 17) return INVALID_VALUE;
    int error = facts(handle, values);
    *value = values[attribute];
    return error;
}

// ---- launches
struct attribute {  // cudaLaunchAttribute
    int id, padding;
    union {
        struct extent cluster;
        int cooperative;
        char value[64];
    };
};
struct configuration {  // cudaLaunchConfig_t
    struct extent grid, block;
    size_t shared;
    struct stream *stream;
    const struct attribute *attributes;
    unsigned count;
};

static void read_attributes(const struct attribute *attributes, unsigned count, struct launch *launch)
{
    enum {
        IGNORED = 0,
        WINDOW = 1,
        COOPERATIVE = 2,
        SYNCHRONISATION = 3,
        CLUSTER = 4,
        POLICY = 5,
        SERIALISATION = 6,
        PRIORITY = 8,
        DOMAIN_MAP = 9,
        DOMAIN = 10,
        PREFERRED_CLUSTER = 11,
        CARVEOUT = 14,
        NVLINK = 16
    };
    for (; count > 0; ++attributes, --count) switch (attributes->id) {
        case COOPERATIVE: launch->cooperative = attributes->cooperative; break;
        case CLUSTER: launch->cluster = attributes->cluster; break;
        case IGNORED:
        case WINDOW:
        case SYNCHRONISATION:
        case POLICY:
        case SERIALISATION:
        case PRIORITY:
        case DOMAIN_MAP:
        case DOMAIN:
        case PREFERRED_CLUSTER:
        case CARVEOUT:
        case NVLINK: break;  // change nothing that a kernel computes
        default:
            refuse("the launch attribute %d, with which the program launches %s, is not covered", attributes->id, launch->function->name);
        }
}

static int launch_by(struct function *function, struct launch launch, void **arguments, struct stream *stream)
{
    int error = resolved(function);
    if (error) return error;
    launch.function = function;
    char *parameters = calloc(1, function->bytes + 1);
    for (uint64_t i = 0; i < function->parameters; ++i) memcpy(parameters + function->layout[i][0], arguments[i], function->layout[i][1]);
    launch.parameters = parameters;
    error = enqueue(stream, (struct operation){.kind = LAUNCHES, .launch = launch});
    free(parameters);
    return error;
}

EXPORT int cudaLaunchKernel(const void *handle, struct extent grid, struct extent block, void **arguments, size_t shared,
                            struct stream *stream)
{ return done(launch_by(function_of(handle), (struct launch){.grid = grid, .block = block, .shared = shared}, arguments, stream)); }
SAME(__cudaLaunchKernel, cudaLaunchKernel);

EXPORT int cudaLaunchCooperativeKernel(const void *handle, struct extent grid, struct extent block, void **arguments, size_t shared,
                                       struct stream *stream)
{
    struct launch launch = {.grid = grid, .block = block, .shared = shared, .cooperative = 1};
    return done(launch_by(function_of(handle), launch, arguments, stream));
}

EXPORT int cudaLaunchKernelExC(const struct configuration *configuration, const void *handle, void **arguments)
{
    struct launch launch = {function_of(handle), configuration->grid, configuration->block, {0}, configuration->shared, 0, NULL};
    if (launch.function == NULL) return done(INVALID_FUNCTION);
    read_attributes(configuration->attributes, configuration->count, &launch);
    return done(launch_by(launch.function, launch, arguments, configuration->stream));
}

// What <<<...>>> keeps until its kernel's own function launches.
static __thread struct {
    struct extent grid, block;
    size_t shared;
    struct stream *stream;
} pushed;

EXPORT unsigned __cudaPushCallConfiguration(struct extent grid, struct extent block, size_t shared, struct stream *stream)
{
    pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
    return 0;
}

EXPORT int __cudaPopCallConfiguration(struct extent *grid, struct extent *block, size_t *shared, struct stream **stream)
{
    *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *stream = pushed.stream;
    return SUCCESS;
}

// ---- the driver's
static int of_driver(int error) { return error == INVALID_CONFIGURATION ? INVALID_VALUE : error; }

// `extra` gives the whole parameter block: {1, its address, 2, the address of its size, 0}.
static int launch_block(struct launch launch, void **arguments, void **extra, struct stream *stream)
{
    int error = resolved(launch.function);
    if (error) return error;
    if (extra == NULL) return of_driver(launch_by(launch.function, launch, arguments, stream));
    const char *block = NULL;
    for (; *extra != NULL; extra += 2)
        if (*extra == (void *)1) block = extra[1];
    void *places[MOST_PARAMETERS];
    if (block == NULL) return INVALID_VALUE;
    for (uint64_t i = 0; i < launch.function->parameters; ++i) places[i] = (void *)(block + launch.function->layout[i][0]);
    return of_driver(launch_by(launch.function, launch, places, stream));
}

EXPORT int cuLaunchKernel(struct function *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, struct stream *stream, void **arguments, void **extra)
{
    struct launch launch = {function_of(handle), {gx, gy, gz}, {bx, by, bz}, {0}, shared, 0, NULL};
    return launch_block(launch, arguments, extra, stream);
}

EXPORT int cuLaunchCooperativeKernel(struct function *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                     unsigned shared, struct stream *stream, void **arguments)
{
    struct launch launch = {function_of(handle), {gx, gy, gz}, {bx, by, bz}, {0}, shared, 1, NULL};
    return launch_block(launch, arguments, NULL, stream);
}

struct driver_configuration {  // CUlaunchConfig
    struct extent grid, block;
    unsigned shared;
    struct stream *stream;
    const struct attribute *attributes;
    unsigned count;
};

EXPORT int cuLaunchKernelEx(const struct driver_configuration *configuration, struct function *handle, void **arguments, void **extra)
{
    struct launch launch = {function_of(handle), configuration->grid, configuration->block, {0}, configuration->shared, 0, NULL};
    if (launch.function == NULL) return INVALID_HANDLE;
    read_attributes(configuration->attributes, configuration->count, &launch);
    return launch_block(launch, arguments, extra, configuration->stream);
}

// ---- occupancy
static struct message occupancy(const void *handle, struct extent cluster, size_t threads, size_t shared)
{
    struct function *function = function_of(handle);
    struct message answer = {.what = (uint64_t)resolved(function)};
    if (answer.what) return answer;
    struct message request = {OCCUPANCY, 0, {function->id, threads, shared, (uint64_t)cluster.x * cluster.y * cluster.z}};
    return ask(request, NULL, NULL, 0);
}

EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *handle, int threads, size_t shared,
                                                                  unsigned flags)
{
    (void)flags;
    struct message answer = occupancy(handle, (struct extent){1, 1, 1}, (size_t)threads, shared);
    *blocks = (int)answer.argument[0];
    return done((int)answer.what);
}
SAME(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);

EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *handle, int threads, size_t shared)
{ return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, shared, 0); }
SAME(cuOccupancyMaxActiveBlocksPerMultiprocessor, cudaOccupancyMaxActiveBlocksPerMultiprocessor);

EXPORT int cudaOccupancyMaxActiveClusters(int *clusters, const void *handle, const struct configuration *configuration)
{
    struct launch launch = {.function = function_of(handle), .cluster = {1, 1, 1}};
    if (launch.function == NULL) return done(INVALID_FUNCTION);
    read_attributes(configuration->attributes, configuration->count, &launch);
    struct extent block = configuration->block;
    struct message answer = occupancy(handle, launch.cluster, (size_t)block.x * block.y * block.z, configuration->shared);
    *clusters = (int)answer.argument[1];
    return done((int)answer.what);
}

EXPORT int cudaOccupancyMaxPotentialClusterSize(int *size, const void *handle, const struct configuration *configuration)
{
    (void)configuration;
    int32_t values[17] = {0};
    int error = facts(handle, values);
    *size = values[14] ? 16 : 8;
    return done(error);
}

EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *size, const void *handle, int blocks, int threads)
{
    int32_t values[17] = {0};
    (void)threads;
    int error = facts(handle, values);
    const int32_t *limits = device()->attributes;
    int all = limits[81] / (blocks < 1 ? 1 : blocks) - limits[111],
        most = limits[97];  // of a multiprocessor, less what is reserved; of a CTA
    *size = (size_t)((all < most ? all : most) - values[1]);
    return done(error);
}
