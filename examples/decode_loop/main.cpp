// A decode loop in FP8 on a package that `zoo export` wrote: no framework, no CUDA toolkit, no Python.
//
//     make && ./main
//
// Each layer is x += SwiGLU(x) in three kernels. All launches are checked and planned before the loop, and a step enqueues the plans.
// All weights of a matrix are equal, so the host computes the exact result in one line. Without a GPU the program prints the plans.
#include "zoo.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

constexpr int64_t TOKENS = 4, K = 512, I = 1024;  // width of the model, gates of a layer
constexpr int LAYERS = 4, STEPS = 8;              // an even number of layers, because they alternate between two buffers
constexpr uint8_t ONE = 0x38;                     // in e4m3
static zoo_device* device;
static bool on_gpu;
static std::vector<zoo_plan*> plans;
static uint64_t address = 1 << 20;  // of the last array; without a GPU a number that nothing reads

static void check(bool right, const char* what) {
    if (!right) std::fprintf(stderr, "%s: %s\n", what, zoo_last_error()), std::exit(1);
}

template <class... Arguments>
static void driver(const char* symbol, Arguments... arguments) {
    auto function = reinterpret_cast<int (*)(Arguments...)>(zoo_driver(symbol));
    check(function && function(arguments...) == 0, symbol);
}

// An array of equal elements in the GPU's memory.
template <class T, class... Extents>
static DLTensor filled(const char* dtype, T value, Extents... extents) {
    auto* shape = new int64_t[]{int64_t(extents)...};  // zoo_array keeps the pointer
    std::vector<T> values((size_t(extents) * ...), value);
    address += 1 << 24;
    if (on_gpu) driver("cuMemAlloc_v2", &address, values.size() * sizeof(T));
    if (on_gpu) driver("cuMemcpyHtoD_v2", address, static_cast<const void*>(values.data()), values.size() * sizeof(T));
    return zoo_array(reinterpret_cast<void*>(address), 0, dtype, sizeof...(extents), shape);
}

static void plan(const char* kernel, std::vector<std::pair<const char*, DLTensor*>> arrays) {
    std::vector<zoo_argument> arguments;
    for (auto& [name, tensor] : arrays) arguments.push_back(zoo_tensor(name, tensor));
    zoo_plan*& made = plans.emplace_back();
    check(zoo_prepare(device, kernel, arguments.data(), arguments.size(), nullptr, &made) == ZOO_OK, "zoo_prepare");
    if (!on_gpu) std::printf("%s in %u blocks\n", zoo_plan_describe(made).symbol, zoo_plan_describe(made).grid[0]);
}

int main() {
    on_gpu = zoo_open(0, &device) == ZOO_OK;
    void* context;
    if (on_gpu) driver("cuDevicePrimaryCtxRetain", &context, 0), driver("cuCtxSetCurrent", context);
    if (!on_gpu) check(zoo_open_arch("sm_90a", 132, &device) == ZOO_OK, "zoo_open_arch");  // an H200
    DLTensor x[2] = {filled("f32", 0.5f, TOKENS, K), filled("f32", 0.f, TOKENS, K)};
    DLTensor q = filled("e4m3", ONE, TOKENS, K), q_scale = filled("f32", 0.f, TOKENS, K / 128);
    DLTensor h = filled("e4m3", ONE, TOKENS, I), h_scale = filled("f32", 0.f, TOKENS, I / 128);
    for (int layer = 0; layer < LAYERS; layer++) {
        DLTensor w_in = filled("e4m3", ONE, 2, I, K), in_scale = filled("f32", 1.f / K, 2 * I / 128, K / 128);
        DLTensor w_out = filled("e4m3", ONE, K, I), out_scale = filled("f32", 1.f / (64 * I), K / 128, I / 128);
        DLTensor *from = &x[layer % 2], *to = &x[1 - layer % 2];
        plan("quantize.fp8b128.rows", {{"x", from}, {"q", &q}, {"scales", &q_scale}});
        plan("gemm.fp8b128.dense.swiglu_fp8b128",
             {{"a", &q}, {"a_scale", &q_scale}, {"b", &w_in}, {"b_scale", &in_scale}, {"q", &h}, {"scales", &h_scale}});
        plan("gemm.fp8b128.dense",
             {{"a", &h}, {"a_scale", &h_scale}, {"b", &w_out}, {"b_scale", &out_scale}, {"c", from}, {"d", to}});
    }
    float found = 0.5f;
    double exact = found;
    for (int step = 0; on_gpu && step < STEPS; step++) {
        for (zoo_plan* launch : plans) check(zoo_plan_launch(launch, nullptr) == ZOO_OK, "zoo_plan_launch");
        driver("cuMemcpyDtoH_v2", static_cast<void*>(&found), reinterpret_cast<uint64_t>(x[0].data), sizeof found);  // waits
        for (int layer = 0; layer < LAYERS; layer++) exact += exact * exact / (1 + std::exp(-exact)) / 64;
        std::printf("step %d: %.6f, exactly %.6f\n", step, found, exact);
    }
    return std::fabs(found / exact - 1) < 1e-5 ? 0 : 1;
}
