// The first half of SwiGLU's backward on a tile in shared memory: gradients in bf16 replace the tile, and the gradient of h
// is quantised along its rows. Included by backward/swiglu_backward.cuh.
//
// Eight lanes share a row. A lane has 8 gates and their ups in each half of the tile:
//
//   d_act, act       slabs 0 and 1: 64 columns each          lane l of a row: columns 8 l .. 8 l + 7 of both slabs
//   h, d_h           slabs 2 .. 5, 64 columns each
//     halves         2, 3 gates    4, 5 ups                  chunk l of each slab
//     interleaved    2 .. 5 gate, up, gate, up ...           two chunks of slab 2 + l / 4, and two of slab 4 + l / 4
//
// A lane's four pieces of d_h have 8 columns each. Pieces 0 and 1 belong to one block of 128 columns, 2 and 3 to another.
#pragma once

#include <cstdint>

#include "common/global_memory.cuh"
#include "common/half.cuh"
#include "common/input_values.cuh"
#include "common/variant.cuh"
#include "quantize/backward/swiglu_gradient.cuh"
#include "quantize/columns/tile.cuh"
#include "quantize/rows/swiglu.cuh"

namespace zoo {

constexpr int SLAB_BYTES = 128 * 128;

// Gates and ups, `interleaved` or not, of K pairs in a row. A tile has 128 pairs from `pair` on. Columns fit into 31 bits.
struct PairColumns {
    int K, pair;
    bool interleaved;

    // The first column of h that belongs to block 0 or 1 of the tile.
    __device__ __forceinline__ int block_column(int block) const {
        return interleaved ? 2 * pair + block * 128 : block * K + pair;
    }
    // The first column of a lane's piece.
    __device__ __forceinline__ int piece_column(int piece, int lane) const {
        return block_column(piece / 2) + (interleaved ? lane * 16 + piece % 2 * 8 : piece % 2 * 64 + lane * 8);
    }
    __device__ __forceinline__ bool has_block(int block) const { return block_column(block) < 2 * K; }
};

// What has an entry for each row. `dots` has a column for each tile.
struct RowEntries {
    const float* weights;
    float* dots;
    int64_t dots_stride;
};

// The elements and scales of d_h along its rows. Steps count scales.
template <class Scale>
struct GradientRows {
    uint8_t* q;
    int64_t q_stride;
    Scale* scales;
    int64_t row_step, block_step;
};

// `mask` is all ones, or 0 for zeros.
__device__ __forceinline__ uint4 pack_bf16(const float (&values)[8], uint32_t mask) {
    return make_uint4(encode_two<bf16>(values[0], values[1]) & mask, encode_two<bf16>(values[2], values[3]) & mask,
                      encode_two<bf16>(values[4], values[5]) & mask, encode_two<bf16>(values[6], values[7]) & mask);
}

// The inverse of Swiglu::deinterleave().
__device__ __forceinline__ void interleave(uint4& gates, uint4& ups) {
    const uint4 g = gates, u = ups;
    auto low = [](uint32_t gate, uint32_t up) { return __byte_perm(gate, up, 0x5410); };
    auto high = [](uint32_t gate, uint32_t up) { return __byte_perm(gate, up, 0x7632); };
    gates = make_uint4(low(g.x, u.x), high(g.x, u.x), low(g.y, u.y), high(g.y, u.y));
    ups = make_uint4(low(g.z, u.z), high(g.z, u.z), low(g.w, u.w), high(g.w, u.w));
}

__device__ __forceinline__ void exchange_if(bool condition, uint4& a, uint4& b) {
    const uint4 one = a, other = b;
    auto chosen = [&](uint32_t x, uint32_t y) { return condition ? y : x; };
    a = make_uint4(chosen(one.x, other.x), chosen(one.y, other.y), chosen(one.z, other.z), chosen(one.w, other.w));
    b = make_uint4(chosen(other.x, one.x), chosen(other.y, one.y), chosen(other.z, one.z), chosen(other.w, one.w));
}

// Replaces d_act by weighted act and h by d_h. Rows from `rows` on become zeros and have no results. `row` is the first
// row of the tile. Called by 256 threads.
template <class Format, class Scale>
__device__ __forceinline__ void differentiate(const Format& format, const SwigluGradient& gradient, const PairColumns& columns,
                                              uint8_t (*slabs)[SLAB_BYTES], int64_t row, int rows, const RowEntries& entries,
                                              const GradientRows<Scale>& results) {
    using In = Input<bf16>;
    const int lane = threadIdx.x % 8;
    const bool interleaved = columns.interleaved;
    const bool swapped = interleaved && lane >= 4;  // such lanes access their second chunk first, which avoids bank conflicts
    const int own_block = lane / 4;
    const int64_t own_scale = columns.block_column(own_block) / 128 * results.block_step;
#pragma unroll 1
    for (int r = threadIdx.x / 8; r < 128; r += 32) {
        const bool exists = r < rows;
        float weight = exists ? 1.0f : 0.0f;
        if (exists && entries.weights) weight = entries.weights[row + r];
        const uint32_t mask = weight == 0.0f ? 0 : ~0u;  // NaN counts
        float dot = 0.0f;
        uint4 first[2], second[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            auto at = [&](int slab, int chunk) { return reinterpret_cast<uint4*>(slabs[slab] + swizzled<128>(r, chunk)); };
            uint4* const of_act = at(half, lane);
            const int slab = interleaved ? 2 + 2 * half + lane / 4 : 2 + half;
            uint4* const one = at(slab, interleaved ? lane % 4 * 2 + swapped : lane);
            uint4* const other = at(interleaved ? slab : slab + 2, interleaved ? lane % 4 * 2 + 1 - swapped : lane);

            typename Swiglu<bf16>::Loaded loaded = {*one, *other};
            exchange_if(swapped, loaded.first, loaded.second);
            if (interleaved) Swiglu<bf16>::deinterleave(loaded);
            float d[8], gates[8], ups[8], act[8];
            In::to_float(*of_act, d);
            In::to_float(loaded.first, gates);
            In::to_float(loaded.second, ups);
#pragma unroll
            for (int v = 0; v < 8; v++) {
                const auto found = gradient(gates[v], ups[v], __fmul_rn(d[v], weight));
                dot = __fmaf_rn(d[v], found.act, dot);
                act[v] = __fmul_rn(found.act, weight);
                gates[v] = found.d_gate;
                ups[v] = found.d_up;
            }
            *of_act = pack_bf16(act, mask);
            first[half] = pack_bf16(gates, mask);
            second[half] = pack_bf16(ups, mask);
            if (interleaved) interleave(first[half], second[half]);
            *one = swapped ? second[half] : first[half];
            *other = swapped ? first[half] : second[half];
        }
        exchange_if(interleaved, first[1], second[0]);  // so that first is one block and second the other

#pragma unroll
        for (int distance = 1; distance < 8; distance *= 2) dot = __fadd_rn(dot, __shfl_xor_sync(0xFFFFFFFF, dot, distance));
        if (exists && lane == 0 && entries.dots) entries.dots[(row + r) * entries.dots_stride + columns.pair / 128] = dot;

        uint32_t largest[2] = {In::larger(In::largest(first[0]), In::largest(first[1])),
                               In::larger(In::largest(second[0]), In::largest(second[1]))};
#pragma unroll
        for (int distance = 1; distance < 8; distance *= 2)
#pragma unroll
            for (int block = 0; block < 2; block++)
                largest[block] = In::larger(largest[block], __shfl_xor_sync(0xFFFFFFFF, largest[block], distance));
        // Lanes 0 to 3 compute the scale of one block, lanes 4 to 7 that of the other.
        const uint32_t scale = format.scale_of(In::magnitude_to_float(In::magnitude(own_block == 0 ? largest[0] : largest[1])));
        const float multiplier = format.multiplier(scale);
        if (exists && lane % 4 == 0 && columns.has_block(own_block))
            results.scales[(row + r) * results.row_step + own_scale] = scale;
        uint8_t* const q = results.q + (row + r) * results.q_stride;
#pragma unroll
        for (int piece = 0; piece < 4; piece++) {
            uint32_t words[2];
            const float of_block = __shfl_sync(0xFFFFFFFF, multiplier, piece / 2 * 4, 8);
            format.template encode_loaded<In>(piece < 2 ? first[piece] : second[piece - 2], of_block, words);
            const int column = columns.piece_column(piece, lane);
            if (exists && column < 2 * columns.K) store_8_bytes(q + column, words);
        }
    }
}

}  // namespace zoo
