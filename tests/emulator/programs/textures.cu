// Textures and surfaces as users write them, for `zoo emulate PROGRAM`. The argument selects a mode. Status 0 means that all values are right.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void check(bool right, const char* what, int line) {
    if (right) return;
    printf("line %d: %s\n", line, what);
    exit(3);
}
#define CHECK(condition) check(condition, #condition, __LINE__)
#define CALL(call) check((call) == cudaSuccess, #call, __LINE__)

constexpr int W = 8, H = 4, D = 3;

__global__ void rotated(float* out, cudaTextureObject_t image) {  // a quarter turn, in normalized coordinates that wrap
    int x = threadIdx.x, y = threadIdx.y;
    out[y * W + x] = tex2D<float>(image, 1 + (x + 0.5f) / W, (y + 0.5f) / H - 2);
}

__global__ void halfway(float* out, cudaTextureObject_t image) { out[threadIdx.x] = tex2D<float>(image, threadIdx.x + 1, 0.5f); }

__global__ void fetched(uchar4* out, cudaTextureObject_t buffer) {
    out[threadIdx.x] = tex1Dfetch<uchar4>(buffer, (int)threadIdx.x);
}

__global__ void of_volume(short2* out, cudaTextureObject_t volume) {
    int i = threadIdx.x;
    out[i] = tex3D<short2>(volume, i % W + 0.5f, i / W % H + 0.5f, i / (W * H) + 0.5f);
}

__global__ void of_layers(float* out, cudaTextureObject_t layers) {
    int i = threadIdx.x;
    out[i] = tex2DLayered<float>(layers, i % W + 0.5f, i / W % H + 0.5f, i / (W * H));
}

__global__ void of_cube(float* out, cudaTextureObject_t cube) {
    const float3 along[6] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
    float3 to = along[threadIdx.x];
    out[threadIdx.x] = texCubemap<float>(cube, to.x, to.y, to.z);
}

__global__ void doubled(cudaSurfaceObject_t in, cudaSurfaceObject_t out, int width) {
    int x = threadIdx.x, y = threadIdx.y;
    float value = surf2Dread<float>(in, x * 4, y);
    if (x < width) surf2Dwrite(2 * value, out, x * 4, y);
}

__global__ void past_the_end(cudaSurfaceObject_t in, float* out) { out[threadIdx.x] = surf2Dread<float>(in, threadIdx.x * 4, 0); }

__global__ void in_and_out(cudaSurfaceObject_t surface, cudaTextureObject_t image, float* out) {
    int x = threadIdx.x;
    surf2Dwrite(1.0f, surface, x * 4, 0);
    __syncthreads();
    out[x] = tex2D<float>(image, x + 0.5f, 0.5f);
}

static cudaTextureObject_t of_array(cudaArray_t array, cudaTextureDesc how = {}) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureObject_t made;
    CALL(cudaCreateTextureObject(&made, &resource, &how, nullptr));
    return made;
}

static cudaSurfaceObject_t surface_of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t made;
    CALL(cudaCreateSurfaceObject(&made, &resource));
    return made;
}

static float* result(int count) {
    float* made;
    CALL(cudaMallocManaged(&made, count * sizeof *made));
    return made;
}

static void images() {
    cudaDeviceProp properties;
    CALL(cudaGetDeviceProperties(&properties, 0));
    CHECK(properties.maxTexture2D[1] == 65536 && properties.maxTexture3D[2] == 16384 &&
          properties.maxTexture2DLayered[2] == 2048);
    CHECK(properties.maxTextureCubemapLayered[1] == 2046 && properties.maxSurface3D[0] == 16384 && properties.maxSurface1D == 0);
    CHECK(properties.textureAlignment == 512 && properties.surfaceAlignment == 512 && properties.concurrentKernels == 1);
    auto floats = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    float host[H][W], back[H][W];
    for (int i = 0; i < W * H; ++i) host[0][i] = i;
    CALL(cudaMallocArray(&array, &floats, W, H));
    CALL(cudaMemcpy2DToArray(array, 0, 0, host, sizeof *host, sizeof *host, H, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DToArray(array, 4, 0, host, sizeof *host, sizeof *host, H, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CALL(cudaMemcpy2DFromArray(back, sizeof *back, array, 0, 0, sizeof *back, H, cudaMemcpyDeviceToHost));
    CHECK(memcmp(host, back, sizeof host) == 0);
    cudaChannelFormatDesc format;
    cudaExtent extent;
    unsigned flags;
    CALL(cudaArrayGetInfo(&format, &extent, &flags, array));
    CHECK(format.x == 32 && format.y == 0 && format.f == cudaChannelFormatKindFloat && extent.width == W && extent.height == H &&
          flags == 0);

    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap;
    how.normalizedCoords = 1;
    float* out = result(W * H);
    cudaTextureObject_t wrapping = of_array(array, how);
    rotated<<<1, dim3(W, H)>>>(out, wrapping);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < W * H; ++i) CHECK(out[i] == i);

    how = {};
    how.addressMode[0] = cudaAddressModeBorder;
    how.filterMode = cudaFilterModeLinear;
    how.borderColor[0] = -5;
    cudaTextureObject_t filtering = of_array(array, how);
    halfway<<<1, W>>>(out, filtering);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < W - 1; ++i) CHECK(out[i] == i + 0.5f);
    CHECK(out[W - 1] == (7 - 5) / 2.f);
    CALL(cudaDestroyTextureObject(filtering));
    CHECK(cudaDestroyTextureObject(filtering) != cudaSuccess);
    CALL(cudaFreeArray(array));
}

static void buffers() {
    unsigned char host[64 * 4], back[64 * 4];
    for (int i = 0; i < 64 * 4; ++i) host[i] = 7 * i;
    uchar4 *in, *out;
    CALL(cudaMalloc(&in, sizeof host));
    CALL(cudaMalloc(&out, sizeof host));
    CALL(cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = in;
    resource.res.linear.desc = cudaCreateChannelDesc<uchar4>();
    resource.res.linear.sizeInBytes = sizeof host;
    cudaTextureDesc how = {};
    cudaTextureObject_t buffer;
    CALL(cudaCreateTextureObject(&buffer, &resource, &how, nullptr));
    fetched<<<1, 64>>>(out, buffer);
    CALL(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(memcmp(host, back, sizeof host) == 0);
    resource.res.linear.devPtr = in + 1;  // not aligned
    CHECK(cudaCreateTextureObject(&buffer, &resource, &how, nullptr) == cudaErrorInvalidValue);

    float *rows, *values = result(W);
    size_t pitch;
    CALL(cudaMallocPitch(&rows, &pitch, W * sizeof *rows, H));
    float row[W] = {0, 2, 4, 6, 8, 10, 12, 14};
    for (int y = 0; y < H; ++y) CALL(cudaMemcpy((char*)rows + y * pitch, row, sizeof row, cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = rows;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    resource.res.pitch2D.width = W;
    resource.res.pitch2D.height = H;
    resource.res.pitch2D.pitchInBytes = pitch;
    how.filterMode = cudaFilterModeLinear;
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    CALL(cudaCreateTextureObject(&buffer, &resource, &how, nullptr));
    halfway<<<1, W>>>(values, buffer);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < W; ++i) CHECK(values[i] == (i < W - 1 ? 2 * i + 1 : 14));
}

static void volumes() {
    short2 host[D][H][W], *out;
    for (int i = 0; i < W * H * D; ++i) host[0][0][i] = make_short2(i, -i);
    auto shorts = cudaCreateChannelDesc<short2>();
    auto floats = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CALL(cudaMalloc3DArray(&array, &shorts, make_cudaExtent(W, H, D)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(host, sizeof **host, W, H);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(W, H, D);
    copy.kind = cudaMemcpyHostToDevice;
    CALL(cudaMemcpy3D(&copy));
    CALL(cudaMallocManaged(&out, sizeof host));
    of_volume<<<1, W * H * D>>>(out, of_array(array));
    CALL(cudaDeviceSynchronize());
    CHECK(memcmp(out, host, sizeof host) == 0);

    float values[D][H][W], *found = result(W * H * D);
    for (int i = 0; i < W * H * D; ++i) values[0][0][i] = 3 * i;
    CALL(cudaMalloc3DArray(&array, &floats, make_cudaExtent(W, H, D), cudaArrayLayered));
    copy.srcPtr = make_cudaPitchedPtr(values, sizeof **values, W, H);
    copy.dstArray = array;
    CALL(cudaMemcpy3D(&copy));
    of_layers<<<1, W * H * D>>>(found, of_array(array));
    CALL(cudaDeviceSynchronize());
    CHECK(memcmp(found, values, sizeof values) == 0);

    float faces[6][4] = {};
    for (int i = 0; i < 24; ++i) faces[0][i] = i / 4;
    CALL(cudaMalloc3DArray(&array, &floats, make_cudaExtent(2, 2, 6), cudaArrayCubemap));
    copy.srcPtr = make_cudaPitchedPtr(faces, 2 * sizeof(float), 2, 2);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(2, 2, 6);
    CALL(cudaMemcpy3D(&copy));
    cudaTextureDesc how = {};
    how.normalizedCoords = 1;
    of_cube<<<1, 6>>>(found, of_array(array, how));
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 6; ++i) CHECK(found[i] == i);
}

static cudaArray_t of_ones(unsigned flags) {
    auto floats = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    float host[H][W];
    for (int i = 0; i < W * H; ++i) host[0][i] = 1;
    CALL(cudaMallocArray(&array, &floats, W, H, flags));
    CALL(cudaMemcpyToArray(array, 0, 0, host, sizeof host, cudaMemcpyHostToDevice));
    return array;
}

static void surfaces() {
    cudaArray_t in = of_ones(cudaArraySurfaceLoadStore), out = of_ones(cudaArraySurfaceLoadStore);
    doubled<<<1, dim3(W, H)>>>(surface_of(in), surface_of(out), W / 2);
    float back[H][W];
    CALL(cudaMemcpyFromArray(back, out, 0, 0, sizeof back, cudaMemcpyDeviceToHost));
    for (int i = 0; i < W * H; ++i) CHECK(back[0][i] == (i % W < W / 2 ? 2 : 1));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = of_ones(0);
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource) == cudaErrorInvalidValue);
    cudaGetLastError();
}

static void of_the_driver() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
#define DRIVER(name, symbol) auto name##_ = (decltype(&name))dlsym(driver, symbol)
    DRIVER(cuArrayCreate, "cuArrayCreate_v2");
    DRIVER(cuMemcpy2D, "cuMemcpy2D_v2");
    DRIVER(cuTexObjectCreate, "cuTexObjectCreate");
    CUDA_ARRAY_DESCRIPTOR of = {W, 1, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUarray array;
    CHECK(cuArrayCreate_(&array, &of) == CUDA_SUCCESS);
    unsigned char host[W] = {0, 51, 102, 153, 204, 255, 0, 0};
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = host, copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    copy.WidthInBytes = W, copy.Height = 1;
    CHECK(cuMemcpy2D_(&copy) == CUDA_SUCCESS);
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY, resource.res.array.hArray = array;
    CUDA_TEXTURE_DESC how = {};
    how.addressMode[0] = CU_TR_ADDRESS_MODE_CLAMP;
    CUtexObject image;
    CHECK(cuTexObjectCreate_(&image, &resource, &how, nullptr) == CUDA_SUCCESS);
    float* out = result(W);
    halfway<<<1, 5>>>(out, image);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 5; ++i) CHECK(out[i] == host[i + 1] / 255.f);
}

__global__ void colours(float* out, cudaTextureObject_t image) {
    float4 colour = tex2D<float4>(image, threadIdx.x + 0.5f, 0.5f);
    out[4 * threadIdx.x] = colour.x;
    out[4 * threadIdx.x + 3] = colour.w;
}

void srgb() {
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
    CALL(cudaMallocArray(&array, &format, 8, 1));
    uchar4 host[8];
    for (int i = 0; i < 8; ++i) host[i] = make_uchar4(30 * i, 0, 0, 30 * i);
    CALL(cudaMemcpy2DToArray(array, 0, 0, host, sizeof host, sizeof host, 1, cudaMemcpyHostToDevice));
    cudaTextureDesc how = {};
    how.readMode = cudaReadModeNormalizedFloat;
    how.sRGB = 1;
    float* out = result(32);
    colours<<<1, 8>>>(out, of_array(array, how));
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 8; ++i) {
        float code = 30 * i / 255.f, linear = code <= 0.04045f ? code / 12.92f : powf((code + 0.055f) / 1.055f, 2.4f);
        CHECK(fabsf(out[4 * i] - linear) < 1e-6f && out[4 * i + 3] == code);
    }
}

__global__ void of_levels(float* out, cudaTextureObject_t image) {
    out[threadIdx.x] = tex2DLod<float>(image, 0.5f, 0.5f, threadIdx.x * 0.5f);
}

// Level i is full of 10 i.
void mipmaps() {
    cudaMipmappedArray_t mipmaps;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CALL(cudaMallocMipmappedArray(&mipmaps, &format, cudaExtent{6, 3, 0}, 9));
    cudaArray_t array;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmaps, 3) == cudaErrorInvalidValue);
    for (int level = 0; level < 3; ++level) {
        CALL(cudaGetMipmappedArrayLevel(&array, mipmaps, level));
        std::vector<float> texels(18, 10.f * level);
        cudaExtent size;
        CALL(cudaArrayGetInfo(nullptr, &size, nullptr, array));
        CHECK(size.width == 6 >> level && size.height == (level ? 1 : 3));
        CALL(
            cudaMemcpy2DToArray(array, 0, 0, texels.data(), 4 * size.width, 4 * size.width, size.height, cudaMemcpyHostToDevice));
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmaps;
    cudaTextureDesc how = {};
    how.normalizedCoords = 1;
    how.mipmapFilterMode = cudaFilterModeLinear;
    how.maxMipmapLevelClamp = 1.75f;
    cudaTextureObject_t image;
    CALL(cudaCreateTextureObject(&image, &resource, &how, nullptr));
    float* out = result(5);
    of_levels<<<1, 5>>>(out, image);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 5; ++i) CHECK(out[i] == fminf(5.f * i, 17.5f));
    CALL(cudaDestroyTextureObject(image));
    CALL(cudaFreeMipmappedArray(mipmaps));
}

int main(int count, char** arguments) {
    const char* mode = count > 1 ? arguments[1] : "";
    if (strcmp(mode, "right") == 0) {
        images();
        buffers();
        volumes();
        surfaces();
        of_the_driver();
        srgb();
        mipmaps();
    } else if (strcmp(mode, "wrong") == 0) {
        cudaArray_t array = of_ones(cudaArraySurfaceLoadStore);
        past_the_end<<<1, W + 1>>>(surface_of(array), result(W + 1));
        in_and_out<<<1, W>>>(surface_of(array), of_array(array), result(W));
    } else if (strcmp(mode, "seamless") == 0) {
        cudaTextureDesc how = {};
        how.seamlessCubemap = 1;
        of_array(of_ones(0), how);
    } else {
        return 4;
    }
    CALL(cudaDeviceSynchronize());
    return 0;
}
