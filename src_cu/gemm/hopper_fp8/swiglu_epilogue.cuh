// The SwiGLU epilogue: h = silu(gate) * up from the f32 sums of gates and ups. In variants with ANY_ACTIVATION the launch chooses the activation, and
// gives a bias or none. The optional row_scale multiplies h by routing weights. The result is bf16, or e4m3 with an f32 scale for 1 x 128 of a row
// (fp8b128). Included by the SwiGLU kernels.
//
// Tokens as rows of wgmma: a gate and its up are registers of the same thread. A tile of 128 columns of h has a scale block of every row, whose
// columns the four lanes of a quad have. A tile of 64 columns has half a scale block, and the CTA with the other half sends its largest
// magnitude. A warp's e4m3 rows pass through its RowBuffer, 16 rows x 128 bytes, or through its HalfRowBuffer (tiles_in_pairs.cuh).
//
// Weights as rows of wgmma: gates and ups are added up in shared memory. Sixteen neighbouring lanes have a token's scale block.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/magnitude.cuh"
#include "common/nothing.cuh"
#include "common/sigmoid.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "gemm/epilogue/activation.cuh"
#include "gemm/epilogue/branchless_fp8b128.cuh"
#include "gemm/hopper_fp8/store_reduced.cuh"
#include "gemm/hopper_fp8/store_rows.cuh"
#include "gemm/hopper_fp8/pipeline/many_tokens.cuh"
#include "gemm/hopper_fp8/pipeline/tiles_in_pairs.cuh"

namespace zoo {

// e4m3 rows, `stride` bytes apart, and a scale for 128 columns of each row, of any strides. If each group has a slot of `rows` rows,
// scales_group leads from slot to slot. Else both are 0.
struct Fp8Output {
    static constexpr bool QUANTIZES = true;
    uint8_t* first;
    int64_t stride;
    int columns;
    float* scales;
    int64_t scales_group, scales_row, scales_block;
    int rows;
    BranchlessFp8b128 format;

    __device__ __forceinline__ uint8_t* at(int row, int column) const { return first + row * stride + column; }
    __device__ __forceinline__ void store_scale(const Work& work, int row, int column, uint32_t scale) const {
        scales[work.group * scales_group + (row - work.group * rows) * scales_row + column / SCALE_BLOCK * scales_block] =
            __uint_as_float(scale);
    }
};

struct Bf16Output : OutputMatrix<bf16> {
    static constexpr bool QUANTIZES = false;
};

// fp8b128, or bf16 where the launch gives no scales.
struct OutputByLaunch : Fp8Output {
    __device__ __forceinline__ bool is_fp8() const { return scales != nullptr; }
    __device__ __forceinline__ OutputMatrix<bf16> bf16_output() const { return {first, stride, columns}; }
};

// silu alone, without a bias.
struct SiluGating {
    __device__ __forceinline__ Nothing bias_of_eight(int, int) const { return {}; }
    __device__ __forceinline__ void add(const Nothing&, float (&)[8], float (&)[8]) const {}
    __device__ __forceinline__ void limit(float (&)[8], float (&)[8]) const {}
    __device__ __forceinline__ float h(float gate, float up) const { return __fmul_rn(silu(gate), up); }
};

// The launch chooses the activation, and gives a bias or none.
struct LaunchedGating {
    struct EightColumns {
        float gates[8] = {}, ups[8] = {};
    };

    Activation activation{ActivationKind::silu, 0};
    bool limited = false;           // silu alone has no limit
    const uint8_t* bias = nullptr;  // of each group (2, I), or interleaved (I, 2); may be null
    bool bias_is_bf16 = false, interleaved = false;
    int columns = 0;  // I

    // The bias of the gates and ups of eight columns of h. `column`, the first of them, is a multiple of 8. Columns past the last have no bias.
    __device__ __forceinline__ EightColumns bias_of_eight(int group, int column) const {
        EightColumns eight;
        if (bias == nullptr || column >= columns) return eight;
        const int64_t first = int64_t(group) * 2 * columns;
        float one[8], other[8];
        load_eights(first + (interleaved ? 2 * column : column), first + (interleaved ? 2 * column + 8 : columns + column), one,
                    other);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float* pair = i < 4 ? &one[2 * i] : &other[2 * i - 8];
            eight.gates[i] = interleaved ? pair[0] : one[i];
            eight.ups[i] = interleaved ? pair[1] : other[i];
        }
        return eight;
    }
    __device__ __forceinline__ void add(const EightColumns& eight, float (&gates)[8], float (&ups)[8]) const {
        if (bias == nullptr) return;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            gates[i] = __fadd_rn(gates[i], eight.gates[i]);
            ups[i] = __fadd_rn(ups[i], eight.ups[i]);
        }
    }
    template <int COUNT>
    __device__ __forceinline__ void limit(float (&gates)[COUNT], float (&ups)[COUNT]) const {
        if (limited)
#pragma unroll
            for (int i = 0; i < COUNT; i++) activation.limit_both(gates[i], ups[i]);
    }
    __device__ __forceinline__ float h(float gate, float up) const { return activation.of_limited(gate, up); }

   private:
    // All loads come before the first use.
    __device__ __forceinline__ void load_eights(int64_t index, int64_t other_index, float (&one)[8], float (&other)[8]) const {
        const uint8_t *from = bias + index * (bias_is_bf16 ? 2 : 4), *other_from = bias + other_index * (bias_is_bf16 ? 2 : 4);
        const uint4 words[2] = {load_16_bytes(from), load_16_bytes(other_from)};
        uint4 more[2] = {};
        if (!bias_is_bf16) more[0] = load_16_bytes(from + 16), more[1] = load_16_bytes(other_from + 16);
        decode(words[0], more[0], one);
        decode(words[1], more[1], other);
    }
    __device__ __forceinline__ void decode(const uint4& words, const uint4& more, float (&eight)[8]) const {
        const uint32_t all[8] = {words.x, words.y, words.z, words.w, more.x, more.y, more.z, more.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            eight[i] = __uint_as_float(!bias_is_bf16 ? all[i] : i % 2 == 0 ? all[i / 2] << 16 : all[i / 2] & 0xFFFF0000);
    }
};

template <class V>
constexpr bool ANY_ACTIVATION = requires { V::ANY_ACTIVATION; };

// Out is Fp8Output, Bf16Output or OutputByLaunch. choose() sets what a launch chooses.
template <class Out, bool ANY = ANY_ACTIVATION<Variant>>
struct SwigluOutput {
    Out out;
    const float* row_scale;  // may be null

    __device__ __forceinline__ SiluGating gating() const { return {}; }  // as a member it would change cubins
    __device__ __forceinline__ void choose(ActivationKind, float, const uint8_t*, int, int) {}
};
template <class Out>
struct SwigluOutput<Out, true> {
    Out out;
    const float* row_scale;
    LaunchedGating launched;

    __device__ __forceinline__ const LaunchedGating& gating() const { return launched; }
    __device__ __forceinline__ void choose(ActivationKind activation, float limit, const uint8_t* bias, int bias_is_bf16,
                                           int interleaved) {
        launched = {{activation, limit}, activation != ActivationKind::silu, bias, bias_is_bf16 != 0, interleaved != 0,
                    out.columns};
    }
};

// Tokens as rows of wgmma.
template <class D, int SUMS>
__device__ __forceinline__ void store_h(const OutputMatrix<D>& d, RowBuffer& buffer, const Work& work, int row,
                                        const float (&h)[SUMS]) {
    store_rows(d, buffer, work.token + row, work.end_token, work.weight, h);
}

// The bits of the largest magnitude in each of a lane's two rows, over all columns of the tile.
template <int SUMS>
__device__ __forceinline__ void largest_of_rows(const float (&h)[SUMS], uint32_t (&largest)[2]) {
    float amax[2] = {};
#pragma unroll
    for (int j = 0; j < SUMS; j++) amax[j / 2 % 2] = larger_magnitude(amax[j / 2 % 2], h[j]);
#pragma unroll
    for (int half = 0; half < 2; half++) largest[half] = group_max<4>(__float_as_uint(amax[half]));
}

// `largest` is the scale block's. Buffer has a warp's rows of the tile.
template <class Buffer, int SUMS>
__device__ __forceinline__ void quantize_and_store(const Fp8Output& q, Buffer& buffer, const Work& work, int row,
                                                   const uint32_t (&largest)[2], const float (&h)[SUMS]) {
    constexpr int LANES = SUMS * 2 / 16, ROWS = 32 / LANES;  // lanes of 16 bytes in a row; rows at a time
    const int thread = reread_thread_index(), lane = thread % 32;
    const int first_row = work.token + row + thread % WARPGROUP / 32 * WARP_ROWS;
    uint32_t scale[2];
    float multiplier[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        scale[half] = q.format.scale_of(__uint_as_float(largest[half]));
        multiplier[half] = q.format.multiplier(scale[half]);
    }
    __syncwarp();  // all lanes have read the previous rows
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {  // a lane has two of eight columns
        const int r = j / 2 % 2 * 8 + lane / 4, i = j / 4;
        *reinterpret_cast<uint16_t*>(buffer.piece(r, i / 2) + i % 2 * 8 + lane % 4 * 2) =
            Fp8<e4m3>::encode(h[j] * multiplier[j / 2 % 2], h[j + 1] * multiplier[j / 2 % 2]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = first_row + half * 8 + lane / 4;
        if (lane % 4 == 0 && r < work.end_token && work.weight % SCALE_BLOCK == 0)
            q.store_scale(work, r, work.weight, scale[half]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < WARP_ROWS / ROWS; i++) {
        const int r = i * ROWS + lane / LANES, c = work.weight + lane % LANES * 16;
        const uint4 sixteen = *reinterpret_cast<const uint4*>(buffer.piece(r, lane % LANES));
        if (first_row + r < work.end_token && c < q.columns) *reinterpret_cast<uint4*>(q.at(first_row + r, c)) = sixteen;
    }
}

template <int SUMS>
__device__ __forceinline__ void store_h(const Fp8Output& q, RowBuffer& buffer, const Work& work, int row,
                                        const float (&h)[SUMS]) {
    static_assert(SUMS * 2 == SCALE_BLOCK);
    uint32_t largest[2];
    largest_of_rows(h, largest);
    quantize_and_store(q, buffer, work, row, largest, h);
}

template <int SUMS>
__device__ __forceinline__ void store_h(const OutputByLaunch& d, RowBuffer& buffer, const Work& work, int row,
                                        const float (&h)[SUMS]) {
    if (d.is_fp8())
        store_h(static_cast<const Fp8Output&>(d), buffer, work, row, h);
    else
        store_h(d.bf16_output(), buffer, work, row, h);
}

// The bias of a warp's columns passes through its buffer: gates, then ups.
template <class Buffer, int COUNT>
__device__ __forceinline__ void add_bias(const LaunchedGating& gating, Buffer& buffer, const Work& work, float (&gates)[COUNT],
                                         float (&ups)[COUNT]) {
    constexpr int COLUMNS = 2 * COUNT;
    static_assert(COLUMNS / 8 <= 32 && 2 * COLUMNS * sizeof(float) <= sizeof(buffer.bytes));
    float* staged = reinterpret_cast<float*>(buffer.bytes);
    const int lane = reread_thread_index() % 32;
    __syncwarp();  // all lanes have read the previous rows
    if (lane < COLUMNS / 8) {
        const auto eight = gating.bias_of_eight(work.group, work.weight + lane * 8);
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            float4* four = reinterpret_cast<float4*>(staged + lane * 8 + i);
            four[0] = make_float4(eight.gates[i], eight.gates[i + 1], eight.gates[i + 2], eight.gates[i + 3]);
            four[COLUMNS / 4] = make_float4(eight.ups[i], eight.ups[i + 1], eight.ups[i + 2], eight.ups[i + 3]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < COUNT; j += 4) {  // two neighbouring columns of two rows
        const float* two = staged + accumulator_column(j, lane);
        const float2 of_gates = *reinterpret_cast<const float2*>(two), of_ups = *reinterpret_cast<const float2*>(two + COLUMNS);
#pragma unroll
        for (int k = j; k < j + 4; k++) {
            gates[k] = __fadd_rn(gates[k], k % 2 == 0 ? of_gates.x : of_gates.y);
            ups[k] = __fadd_rn(ups[k], k % 2 == 0 ? of_ups.x : of_ups.y);
        }
    }
}

// The first half of all sums are gates, the second half their ups.
template <class Out, class Buffer, int PASSES, int SUMS>
__device__ __forceinline__ void activate(const SwigluOutput<Out>& target, Buffer& buffer, const Work& work, int row,
                                         float (&sums)[PASSES][SUMS], float (&h)[PASSES * SUMS / 2]) {
    static_assert(PASSES <= 2);
    constexpr int HALF = PASSES * SUMS / 2;
    if constexpr (ANY_ACTIVATION<Variant>) {
        float (&gates)[HALF] = reinterpret_cast<float (&)[HALF]>(sums[0][0]);
        float (&ups)[HALF] = reinterpret_cast<float (&)[HALF]>(sums[HALF / SUMS][HALF % SUMS]);
        if (target.gating().bias != nullptr) add_bias(target.gating(), buffer, work, gates, ups);
        target.gating().limit(gates, ups);
    }
#pragma unroll
    for (int j = 0; j < HALF; j++) h[j] = target.gating().h(sums[0][j], sums[(HALF + j) / SUMS][(HALF + j) % SUMS]);
    if (target.row_scale != nullptr) scale_rows(h, target.row_scale, work.token + row, work.end_token);
}

template <int, class Out, int PASSES, int SUMS>
__device__ __forceinline__ void store_passes(const SwigluOutput<Out>& target, RowBuffer& buffer, const Work& work, int row,
                                             float (&sums)[PASSES][SUMS]) {
    float h[PASSES * SUMS / 2];
    activate(target, buffer, work, row, sums, h);
    store_h(target.out, buffer, work, row, h);
}

// Half a scale block: two lanes of each quad send the largest magnitudes of its two rows. All lanes receive the other CTA's.
__device__ __forceinline__ void send_largest(RowExchange& words, uint32_t exchange, const uint32_t (&largest)[2]) {
    const int lane = reread_thread_index() % 32;
    if (lane % 4 < 2) words.send(lane % 4 == 0 ? largest[0] : largest[1], lane / 4 + lane % 4 * 8, exchange);
}

__device__ __forceinline__ void receive_larger(RowExchange& words, uint32_t exchange, uint32_t (&largest)[2]) {
    const int lane = reread_thread_index() % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) largest[half] = max(largest[half], words.receive(lane / 4 + half * 8, exchange));
}

template <int PASSES, int SUMS>
__device__ __forceinline__ void store_half(const SwigluOutput<Fp8Output>& target, HalfRowBuffer& buffer, RowExchange& words,
                                           const Work& work, int row, uint32_t exchange, float (&sums)[PASSES][SUMS]) {
    float h[PASSES * SUMS / 2];
    activate(target, buffer, work, row, sums, h);
    uint32_t largest[2];
    largest_of_rows(h, largest);
    send_largest(words, exchange, largest);
    receive_larger(words, exchange, largest);
    quantize_and_store(target.out, buffer, work, row, largest, h);
}

// Weights as rows of wgmma: each lane has eight columns of a row, and all lanes of a warp call this. Only lanes whose row `exists` store.
template <class D>
__device__ __forceinline__ void store_h(const OutputMatrix<D>& d, const Work&, int row, int column, bool exists,
                                        const float (&h)[8]) {
    if (exists) store_eight(d, row, column, h);
}

__device__ __forceinline__ void store_h(const Fp8Output& q, const Work& work, int row, int column, bool exists,
                                        const float (&h)[8]) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) amax = larger_magnitude(amax, h[i]);
    const uint32_t scale = q.format.scale_of(__uint_as_float(group_max<16>(__float_as_uint(amax))));
    const float multiplier = q.format.multiplier(scale);
    uint32_t words[2];
#pragma unroll
    for (int w = 0; w < 2; w++) {
        const uint32_t low = Fp8<e4m3>::encode(h[4 * w] * multiplier, h[4 * w + 1] * multiplier);
        const uint32_t high = Fp8<e4m3>::encode(h[4 * w + 2] * multiplier, h[4 * w + 3] * multiplier);
        words[w] = high << 16 | low;
    }
    if (!exists) return;
    *reinterpret_cast<uint2*>(q.at(row, column)) = make_uint2(words[0], words[1]);
    if (column % SCALE_BLOCK == 0) q.store_scale(work, row, column, scale);
}

__device__ __forceinline__ void store_h(const OutputByLaunch& d, const Work& work, int row, int column, bool exists,
                                        const float (&h)[8]) {
    if (d.is_fp8())
        store_h(static_cast<const Fp8Output&>(d), work, row, column, exists, h);
    else
        store_h(d.bf16_output(), work, row, column, exists, h);
}

// Each CTA of a cluster stores some of the tokens. fp8b128 needs a token's whole scale block, whose parts PARTS neighbouring CTAs have.
template <int CTAS, int THREADS, class Tile, class Out>
__device__ __forceinline__ void reduce_and_store(const SumsInShared<Tile>& shared_sums, const SwigluOutput<Out>& target,
                                                 const Work& work) {
    constexpr int HALF = Tile::WEIGHTS / 2, PARTS = Out::QUANTIZES ? SCALE_BLOCK / HALF : 1, SPLITS = CTAS / PARTS;
    constexpr int EIGHTS = PARTS * HALF / 8, ALL = Tile::TOKENS * EIGHTS;
    static_assert(ALL % 32 == 0 && THREADS % 32 == 0, "a warp has whole scale blocks, and its lanes stay converged");
    static_assert(!Out::QUANTIZES || PARTS * HALF == SCALE_BLOCK && CTAS == PARTS * SPLITS);
    const int rank = CTAS > 1 ? cluster_rank() : 0, weight = work.weight - rank % PARTS * HALF;
    for (int i = rank * THREADS + threadIdx.x; i < ALL; i += CTAS * THREADS) {
        if (work.token + i / 32 * 32 / EIGHTS >= work.end_token) break;  // the warp has no tokens
        const int r = i / EIGHTS, c = i % EIGHTS * 8, row = work.token + r, column = weight + c;
        const bool exists = row < work.end_token;
        const auto bias = target.gating().bias_of_eight(work.group, column);  // its loads run during the reduction
        float gates[8], ups[8], h[8];
        shared_sums.template reduce<SPLITS, PARTS>(r, c % HALF, gates, c / HALF);
        shared_sums.template reduce<SPLITS, PARTS>(r, HALF + c % HALF, ups, c / HALF);
        target.gating().add(bias, gates, ups);
        target.gating().limit(gates, ups);
#pragma unroll
        for (int e = 0; e < 8; e++) h[e] = target.gating().h(gates[e], ups[e]);
        if (target.row_scale != nullptr) {
            const float factor = exists ? target.row_scale[row] : 0;
#pragma unroll
            for (int e = 0; e < 8; e++) h[e] = __fmul_rn(h[e], factor);
        }
        store_h(target.out, work, row, column, exists && column < target.out.columns, h);
    }
}

}  // namespace zoo
