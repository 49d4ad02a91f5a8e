// Texture and surface objects. Descriptions of the runtime and of the driver become one request to the emulator, which returns a handle.
#include <string.h>

#include "stand_in.h"

enum { OF_ARRAY, OF_MIPMAPS, OF_LINEAR, OF_PITCHED };

struct image {  // in the order of the request's arguments
    uint64_t address, type, channels, width, height, depth, geometry, layers, pitch, linear;
};
struct sampling {  // the request's bytes
    int32_t modes[3], filter, normalized_values, normalized, srgb, level_filter, levels;
    float border[4], bias, least, most;
    uint64_t addresses[MOST_LEVELS - 1];  // of level 1 on
};

static void add_levels(struct sampling *sampling, const struct mipmaps *of)
{
    sampling->levels = (int32_t)of->count - 1;
    for (unsigned level = 1; level < of->count; ++level) sampling->addresses[level - 1] = (uint64_t)of->levels[level]->start;
}

static struct image image_of_array(const struct array *array)
{
    enum { ONE, TWO, THREE, ONES, TWOS, A_CUBE, CUBES };  // GEOMETRIES of textures.py
    struct format format = array->format;
    struct image image = {
        (uint64_t)array->start, format.type, format.channels, array->width, array->height, array->depth, ONE, 1, array->pitch, 0};
    int layered = (array->flags & LAYERED) != 0;
    if (array->flags & CUBE) image.geometry = layered ? CUBES : A_CUBE;
    else if (layered) image.geometry = array->height ? TWOS : ONES;
    else image.geometry = array->depth ? THREE : array->height ? TWO : ONE;
    if (layered || (array->flags & CUBE)) image.layers = array->depth;
    return image;
}

static struct image image_of_memory(void *start, struct format format, size_t width, size_t height, size_t pitch)
{ return (struct image){(uint64_t)start, format.type, format.channels, width, height, 0, height ? 1 : 0, 1, pitch, height == 0}; }

static int create(uint64_t what, const struct image *image, const struct sampling *sampling, uint64_t *handle)
{
    struct message request = {what, sampling ? sizeof *sampling : 0, {0}};
    memcpy(request.argument, image, sizeof *image);
    struct message answer = ask(request, sampling, NULL, 0);
    *handle = answer.argument[0];
    return (int)answer.what;
}

static int destroy(uint64_t handle) { return (int)ask((struct message){DROP, 0, {handle}}, NULL, NULL, 0).what; }

// ---- the runtime
struct resource {
    int kind;
    union {
        struct array *array;
        struct mipmaps *mipmaps;
        struct {
            void *start;
            struct channels channels;
            size_t size_or_width, height, pitch;
        } memory;
        int room[32];
    } of;
    unsigned flags;
};
struct texture {
    int modes[3], filter, read, srgb;
    float border[4];
    int normalized;
    unsigned anisotropy;
    int level_filter;
    float bias, least, most;
    int unoptimised, seamless;
};

static int image_of(const struct resource *resource, struct image *image)
{
    if (resource->kind == OF_MIPMAPS) return *image = image_of_array(resource->of.mipmaps->levels[0]), SUCCESS;
    if (resource->kind == OF_ARRAY) return *image = image_of_array(resource->of.array), SUCCESS;
    struct format format;
    int error = format_of(&resource->of.memory.channels, &format);
    if (error) return error;
    size_t size = resource->of.memory.size_or_width;
    if (resource->kind == OF_LINEAR) *image = image_of_memory(resource->of.memory.start, format, size / format.bytes, 0, 0);
    else *image = image_of_memory(resource->of.memory.start, format, size, resource->of.memory.height, resource->of.memory.pitch);
    return SUCCESS;
}

EXPORT int cudaCreateTextureObject(uint64_t *handle, const struct resource *resource, const struct texture *texture, const void *view)
{
    if (view != NULL) refuse("the program makes a texture with a resource view, which is not covered");
    if (texture->seamless) refuse("the program makes a texture with seamless cubes, which is not covered");
    struct image image;
    struct sampling sampling = {
        .filter = texture->filter, .normalized_values = texture->read, .normalized = texture->normalized, .srgb = texture->srgb != 0};
    memcpy(sampling.modes, texture->modes, sizeof sampling.modes);
    memcpy(sampling.border, texture->border, sizeof sampling.border);
    sampling.level_filter = texture->level_filter, sampling.bias = texture->bias, sampling.least = texture->least,
    sampling.most = texture->most;
    if (resource->kind == OF_MIPMAPS) add_levels(&sampling, resource->of.mipmaps);
    int error = image_of(resource, &image);
    return done(error ? error : create(TEXTURE, &image, &sampling, handle));
}
EXPORT int cudaDestroyTextureObject(uint64_t handle) { return done(destroy(handle)); }

EXPORT int cudaCreateSurfaceObject(uint64_t *handle, const struct resource *resource)
{
    if (resource->kind != OF_ARRAY || !(resource->of.array->flags & FOR_SURFACES)) return done(INVALID_VALUE);
    struct image image = image_of_array(resource->of.array);
    return done(create(SURFACE, &image, NULL, handle));
}
EXPORT int cudaDestroySurfaceObject(uint64_t handle) { return done(destroy(handle)); }

// ---- the driver
struct driver_resource {
    int kind;
    union {
        struct array *array;
        struct mipmaps *mipmaps;
        struct {
            void *start;
            int format;
            unsigned channels;
            size_t size_or_width, height, pitch;
        } memory;
        int room[32];
    } of;
    unsigned flags;
};
struct driver_texture {
    int modes[3], filter;
    unsigned flags, anisotropy;
    int level_filter;
    float bias, least, most, border[4];
};

EXPORT int cuTexObjectCreate(uint64_t *handle, const struct driver_resource *resource, const struct driver_texture *texture,
                             const void *view)
{
    static const unsigned INTEGERS = 1, NORMALIZED = 2, SRGB = 0x10, SEAMLESS = 0x40;
    if (view != NULL || (texture->flags & SEAMLESS))
        refuse("cuTexObjectCreate is called for a view or seamless cubes, which are not covered");
    struct image image;
    if (resource->kind == OF_ARRAY || resource->kind == OF_MIPMAPS) {
        image = image_of_array(resource->kind == OF_ARRAY ? resource->of.array : resource->of.mipmaps->levels[0]);
    } else {
        struct format format;
        format_of_driver(resource->of.memory.format, resource->of.memory.channels, &format);
        size_t size = resource->of.memory.size_or_width;
        int linear = resource->kind == OF_LINEAR;
        image = image_of_memory(resource->of.memory.start, format, linear ? size / format.bytes : size,
                                linear ? 0 : resource->of.memory.height, linear ? 0 : resource->of.memory.pitch);
    }
    struct sampling sampling = {.filter = texture->filter,
                                .normalized_values = !(texture->flags & INTEGERS),
                                .normalized = (texture->flags & NORMALIZED) != 0,
                                .srgb = (texture->flags & SRGB) != 0};
    memcpy(sampling.modes, texture->modes, sizeof sampling.modes);
    memcpy(sampling.border, texture->border, sizeof sampling.border);
    sampling.level_filter = texture->level_filter, sampling.bias = texture->bias, sampling.least = texture->least,
    sampling.most = texture->most;
    if (resource->kind == OF_MIPMAPS) add_levels(&sampling, resource->of.mipmaps);
    return create(TEXTURE, &image, &sampling, handle);
}
SAME(cuTexObjectDestroy, cudaDestroyTextureObject);

EXPORT int cuSurfObjectCreate(uint64_t *handle, const struct driver_resource *resource)
{
    if (resource->kind != OF_ARRAY || !(resource->of.array->flags & FOR_SURFACES)) return INVALID_VALUE;
    struct image image = image_of_array(resource->of.array);
    return create(SURFACE, &image, NULL, handle);
}
SAME(cuSurfObjectDestroy, cudaDestroySurfaceObject);
