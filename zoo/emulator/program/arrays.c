// CUDA arrays, and copies of boxes of arrays and of pitched memory. An array is device memory, row after row.
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

enum { INVALID_CHANNELS = 20, PITCH = 32 };

// ---- formats
static const struct {
    int bits, kind, driver;  // kind: 0 signed, 1 unsigned, 2 float
} formats[] = {{8, 1, 1}, {8, 0, 8}, {16, 1, 2}, {16, 0, 9}, {32, 1, 3}, {32, 0, 10}, {16, 2, 16}, {32, 2, 32}};  // as TYPES of textures.py
enum { FORMATS = sizeof formats / sizeof *formats };

EXPORT struct channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return (struct channels){x, y, z, w, kind}; }

int format_of(const struct channels *of, struct format *format)
{
    int bits[] = {of->x, of->y, of->z, of->w}, count = 0;
    while (count < 4 && bits[count]) ++count;
    for (int i = 0; i < 4; ++i)
        if (bits[i] != (i < count ? of->x : 0)) return INVALID_CHANNELS;
    for (unsigned type = 0; type < FORMATS; ++type)
        if (formats[type].bits == of->x && formats[type].kind == of->kind && (count == 1 || count == 2 || count == 4)) {
            *format = (struct format){type, (unsigned)count, (unsigned)(of->x / 8 * count)};
            return SUCCESS;
        }
    if (of->kind > 3) refuse("the program makes an array with the channel format %d, which is not covered", of->kind);
    return INVALID_CHANNELS;
}

int format_of_driver(int number, unsigned channels, struct format *format)
{
    for (unsigned type = 0; type < FORMATS; ++type)
        if (formats[type].driver == number && (channels == 1 || channels == 2 || channels == 4)) {
            *format = (struct format){type, channels, (unsigned)formats[type].bits / 8 * channels};
            return SUCCESS;
        }
    refuse("the program makes an array with %u channels of the format %d, which is not covered", channels, number);
}

// ---- arrays
static int make(struct array **made, struct format format, size_t width, size_t height, size_t depth, unsigned flags)
{
    static const unsigned UNCOVERED = ~(LAYERED | FOR_SURFACES | CUBE | FOR_GATHER);
    if (flags & UNCOVERED) refuse("the program makes an array with the flags %#x, which are not covered", flags);
    if (width == 0 || ((flags & LAYERED) && depth == 0)) return INVALID_VALUE;
    size_t pitch = (width * format.bytes + PITCH - 1) / PITCH * PITCH;
    struct array array = {NULL, pitch, width, height, depth, flags, format};
    int error = cudaMalloc((void **)&array.start, pitch * rows_of(&array) * slices_of(&array));
    if (error) return error;
    *made = malloc(sizeof **made);
    **made = array;
    return SUCCESS;
}

EXPORT int cudaMalloc3DArray(struct array **made, const struct channels *channels, struct size size, unsigned flags)
{
    struct format format;
    int error = format_of(channels, &format);
    return done(error ? error : make(made, format, size.width, size.height, size.depth, flags));
}
EXPORT int cudaMallocArray(struct array **made, const struct channels *channels, size_t width, size_t height, unsigned flags)
{ return cudaMalloc3DArray(made, channels, (struct size){width, height, 0}, flags); }

extern int cudaFree(void *pointer);
EXPORT int cudaFreeArray(struct array *array)
{
    if (array == NULL) return done(SUCCESS);
    int error = cudaFree(array->start);
    free(array);
    return done(error);
}
SAME(cuArrayDestroy, cudaFreeArray);

EXPORT int cudaGetChannelDesc(struct channels *channels, const struct array *array)
{
    int bits = formats[array->format.type].bits;
    unsigned count = array->format.channels;
    *channels = (struct channels){bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 2 ? bits : 0, formats[array->format.type].kind};
    return done(SUCCESS);
}

EXPORT int cudaArrayGetInfo(struct channels *channels, struct size *size, unsigned *flags, const struct array *array)
{
    if (channels != NULL) cudaGetChannelDesc(channels, array);
    if (size != NULL) *size = (struct size){array->width, array->height, array->depth};
    if (flags != NULL) *flags = array->flags;
    return done(SUCCESS);
}

// ---- mipmaps
static size_t shrunk(size_t extent, unsigned level) { return extent == 0 ? 0 : extent >> level ? extent >> level : 1; }

static int make_mipmaps(struct mipmaps **made, struct format format, struct size size, unsigned count, unsigned flags)
{
    int layered = (flags & (LAYERED | CUBE)) != 0;
    size_t extent = size.width | size.height | (layered ? 0 : size.depth);
    struct mipmaps mipmaps = {.count = 0};
    unsigned most = 1;
    while (extent >>= 1) ++most;
    if (count < most) most = count ? count : 1;
    if (most > MOST_LEVELS) return INVALID_VALUE;
    for (unsigned level = 0; level < most; ++level) {
        size_t depth = layered ? size.depth : shrunk(size.depth, level);
        int error = make(&mipmaps.levels[level], format, shrunk(size.width, level), shrunk(size.height, level), depth, flags);
        if (error) return error;
        ++mipmaps.count;
    }
    *made = malloc(sizeof **made);
    **made = mipmaps;
    return SUCCESS;
}

EXPORT int cudaMallocMipmappedArray(struct mipmaps **made, const struct channels *channels, struct size size, unsigned count,
                                    unsigned flags)
{
    struct format format;
    int error = format_of(channels, &format);
    return done(error ? error : make_mipmaps(made, format, size, count, flags));
}
EXPORT int cudaGetMipmappedArrayLevel(struct array **level, const struct mipmaps *of, unsigned number)
{
    if (number >= of->count) return done(INVALID_VALUE);
    *level = of->levels[number];
    return done(SUCCESS);
}
SAME(cuMipmappedArrayGetLevel, cudaGetMipmappedArrayLevel);
EXPORT int cudaFreeMipmappedArray(struct mipmaps *mipmaps)
{
    int error = SUCCESS;
    for (unsigned level = 0; mipmaps != NULL && level < mipmaps->count && !error; ++level) error = cudaFreeArray(mipmaps->levels[level]);
    free(mipmaps);
    return done(error);
}
SAME(cuMipmappedArrayDestroy, cudaFreeMipmappedArray);

struct description {  // the driver's, of one and two dimensions
    size_t width, height;
    int format;
    unsigned channels;
};
struct description_3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
EXPORT int cuArray3DCreate_v2(struct array **made, const struct description_3d *of)
{
    struct format format;
    int error = format_of_driver(of->format, of->channels, &format);
    return error ? error : make(made, format, of->width, of->height, of->depth, of->flags);
}
EXPORT int cuMipmappedArrayCreate(struct mipmaps **made, const struct description_3d *of, unsigned count)
{
    struct format format;
    int error = format_of_driver(of->format, of->channels, &format);
    return error ? error : make_mipmaps(made, format, (struct size){of->width, of->height, of->depth}, count, of->flags);
}
EXPORT int cuArrayCreate_v2(struct array **made, const struct description *of)
{ return cuArray3DCreate_v2(made, &(struct description_3d){of->width, of->height, 0, of->format, of->channels, 0}); }

EXPORT int cuArray3DGetDescriptor_v2(struct description_3d *found, const struct array *of)
{
    *found = (struct description_3d){of->width, of->height, of->depth, formats[of->format.type].driver, of->format.channels, of->flags};
    return SUCCESS;
}
EXPORT int cuArrayGetDescriptor_v2(struct description *found, const struct array *of)
{
    *found = (struct description){of->width, of->height, formats[of->format.type].driver, of->format.channels};
    return SUCCESS;
}

// ---- copies
struct place {  // where a box begins, in bytes, rows and slices of an array or of memory
    const struct array *array;
    char *start;
    size_t pitch, height, x, y, z;
};

static int fits(const struct place *place, size_t width, size_t height, size_t depth)
{
    const struct array *array = place->array;
    if (array == NULL) return place->pitch == 0 ? height * depth == 1 : width <= place->pitch;
    return place->x + width <= array->width * array->format.bytes && place->y + height <= rows_of(array) &&
           place->z + depth <= slices_of(array);
}

static char *row(const struct place *place, size_t y, size_t z)
{
    const struct array *array = place->array;
    size_t pitch = array ? array->pitch : place->pitch, height = array ? rows_of(array) : place->height;
    return (array ? array->start : place->start) + ((place->z + z) * height + place->y + y) * pitch + place->x;
}

static int copy_box(struct place to, struct place from, size_t width, size_t height, size_t depth, struct stream *stream)
{
    if (!fits(&to, width, height, depth) || !fits(&from, width, height, depth)) return INVALID_VALUE;
    int error = SUCCESS;
    for (size_t z = 0; z < depth; ++z)
        for (size_t y = 0; y < height && !error; ++y)
            error = enqueue(stream, (struct operation){.kind = COPIES, .to = row(&to, y, z), .from = row(&from, y, z), .size = width});
    return error;
}

EXPORT int cudaMemcpy2DToArrayAsync(struct array *to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height,
                                    int kind, struct stream *stream)
{
    (void)kind;
    struct place memory = {NULL, (char *)from, pitch, 0, 0, 0, 0};
    return done(copy_box((struct place){to, NULL, 0, 0, x, y, 0}, memory, width, height, 1, stream));
}
EXPORT int cudaMemcpy2DToArray(struct array *to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int kind)
{ return cudaMemcpy2DToArrayAsync(to, x, y, from, pitch, width, height, kind, NULL); }

EXPORT int cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, const struct array *from, size_t x, size_t y, size_t width, size_t height,
                                      int kind, struct stream *stream)
{
    (void)kind;
    struct place memory = {NULL, to, pitch, 0, 0, 0, 0};
    return done(copy_box(memory, (struct place){from, NULL, 0, 0, x, y, 0}, width, height, 1, stream));
}
EXPORT int cudaMemcpy2DFromArray(void *to, size_t pitch, const struct array *from, size_t x, size_t y, size_t width, size_t height,
                                 int kind)
{ return cudaMemcpy2DFromArrayAsync(to, pitch, from, x, y, width, height, kind, NULL); }

EXPORT int cudaMemcpy2DArrayToArray(struct array *to, size_t to_x, size_t to_y, const struct array *from, size_t x, size_t y, size_t width,
                                    size_t height, int kind)
{
    (void)kind;
    return done(copy_box((struct place){to, NULL, 0, 0, to_x, to_y, 0}, (struct place){from, NULL, 0, 0, x, y, 0}, width, height, 1, NULL));
}

// Copies contiguous bytes of memory to or from consecutive rows of an array.
static int copy_along(const struct array *array, size_t x, size_t y, char *memory, size_t count, int to_array, struct stream *stream)
{
    size_t width = array->width * array->format.bytes;
    int error = x < width ? SUCCESS : INVALID_VALUE;
    for (; count > 0 && !error; x = 0, ++y) {
        size_t part = count < width - x ? count : width - x;
        struct place one = {array, NULL, 0, 0, x, y, 0}, other = {NULL, memory, part, 0, 0, 0, 0};
        error = to_array ? copy_box(one, other, part, 1, 1, stream) : copy_box(other, one, part, 1, 1, stream);
        count -= part, memory += part;
    }
    return done(error);
}
EXPORT int cudaMemcpyToArrayAsync(struct array *to, size_t x, size_t y, const void *from, size_t count, int kind, struct stream *stream)
{ return (void)kind, copy_along(to, x, y, (char *)from, count, 1, stream); }
EXPORT int cudaMemcpyToArray(struct array *to, size_t x, size_t y, const void *from, size_t count, int kind)
{ return cudaMemcpyToArrayAsync(to, x, y, from, count, kind, NULL); }
EXPORT int cudaMemcpyFromArrayAsync(void *to, const struct array *from, size_t x, size_t y, size_t count, int kind, struct stream *stream)
{ return (void)kind, copy_along(from, x, y, to, count, 0, stream); }
EXPORT int cudaMemcpyFromArray(void *to, const struct array *from, size_t x, size_t y, size_t count, int kind)
{ return cudaMemcpyFromArrayAsync(to, from, x, y, count, kind, NULL); }

struct pitched {
    void *start;
    size_t pitch, width, height;
};
struct copy_3d {
    struct array *from_array;
    size_t from[3];
    struct pitched from_memory;
    struct array *to_array;
    size_t to[3];
    struct pitched to_memory;
    struct size size;
    int kind;
};

// Positions count texels in an array and bytes in memory. The width counts texels if either side is an array.
static struct place place_of(struct array *array, const size_t *at, const struct pitched *memory)
{ return (struct place){array, memory->start, memory->pitch, memory->height, at[0] * (array ? array->format.bytes : 1), at[1], at[2]}; }

EXPORT int cudaMemcpy3DAsync(const struct copy_3d *of, struct stream *stream)
{
    const struct array *any = of->to_array ? of->to_array : of->from_array;
    size_t width = of->size.width * (any ? any->format.bytes : 1);
    return done(copy_box(place_of(of->to_array, of->to, &of->to_memory), place_of(of->from_array, of->from, &of->from_memory), width,
                         of->size.height, of->size.depth, stream));
}
EXPORT int cudaMemcpy3D(const struct copy_3d *of) { return cudaMemcpy3DAsync(of, NULL); }

EXPORT int cudaMalloc3D(struct pitched *made, struct size size)
{
    made->width = size.width, made->height = size.height;
    made->pitch = (size.width + 511) / 512 * 512;
    return cudaMalloc(&made->start, made->pitch * size.height * size.depth);
}

EXPORT int cuMemAllocPitch_v2(void **pointer, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(pointer, *pitch * height);
}

enum { HOST = 1, DEVICE_MEMORY = 2, ARRAY = 3 };
struct driver_side {
    size_t x, y;
    int kind;
    void *host, *memory;
    struct array *array;
    size_t pitch;
};
struct driver_copy {
    struct driver_side from, to;
    size_t width, height;
};
struct driver_side_3d {
    size_t x, y, z, level;
    int kind;
    void *host, *memory;
    struct array *array;
    void *reserved;
    size_t pitch, height;
};
struct driver_copy_3d {
    struct driver_side_3d from, to;
    size_t width, height, depth;
};

static struct place place_of_driver(const struct driver_side_3d *side, size_t width)
{
    char *memory = side->kind == HOST ? side->host : side->memory;
    size_t pitch = side->pitch ? side->pitch : side->x + width;
    return (struct place){side->kind == ARRAY ? side->array : NULL, memory, pitch, side->height, side->x, side->y, side->z};
}

EXPORT int cuMemcpy3DAsync_v2(const struct driver_copy_3d *of, struct stream *stream)
{ return copy_box(place_of_driver(&of->to, of->width), place_of_driver(&of->from, of->width), of->width, of->height, of->depth, stream); }
EXPORT int cuMemcpy3D_v2(const struct driver_copy_3d *of) { return cuMemcpy3DAsync_v2(of, NULL); }

static struct driver_side_3d wider(const struct driver_side *side)
{ return (struct driver_side_3d){side->x, side->y, 0, 0, side->kind, side->host, side->memory, side->array, NULL, side->pitch, 0}; }

EXPORT int cuMemcpy2DAsync_v2(const struct driver_copy *of, struct stream *stream)
{ return cuMemcpy3DAsync_v2(&(struct driver_copy_3d){wider(&of->from), wider(&of->to), of->width, of->height, 1}, stream); }
EXPORT int cuMemcpy2D_v2(const struct driver_copy *of) { return cuMemcpy2DAsync_v2(of, NULL); }
SAME(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2);
