// One warpgroup dequantizes packed weights to e4m3 in the stages that wgmma reads: 128 bytes of each weight row, with the 128-byte swizzle. A lane's
// four words of a row are the fragments that wgmma would read from registers, and stmatrix stores just those. Included by dequantized/pipeline.cuh.
#pragma once

#include <cstdint>

#include "common/matrix_store.cuh"
#include "gemm/hopper_w4/dequantized/tile.cuh"
#include "gemm/hopper_w4/epilogue.cuh"
#include "gemm/hopper_w4/operands.cuh"

namespace zoo {

// Four dequantizing warps: each has 16 of every 64 weight rows. The CTA must have a tile. The producer announces tiles, and marks the last tile.
template <class Tile>
__device__ __forceinline__ void dequantize_weights(Tile& tile, int blocks, const PackedMatrices& b,
                                                   const FourBitResult<Tile::FORMAT>& d, int thread) {
    constexpr int PACKED_CHUNKS = Tile::WEIGHT_PARTS * Tile::CHUNKS;  // of a stage
    const uint32_t table = shared_address(tile.magnitudes);
    const int lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    Ring<Tile::STAGES> ring;
    Ring<Tile::Dequantizing::PACKED> packed;
    Ring<Tile::COLUMNS> entry;
    for (bool more = true; more; entry.advance()) {
        wait(&tile.dequantizing.full[packed.stage], packed.parity);
        const AnnouncedTile& work = tile.announced[entry.stage];
        more = work.more;
        const int column = min(work.weight + thread, d.columns - 1), heights = b.weight_parts - work.weight / CHUNK_ROWS;
        const auto of_group = d.of(work.group);
        tile.columns[entry.stage][thread] =
            make_float2(of_group.factor(column), d.bias != nullptr ? of_group.bias_of(column) : 0.0f);
#pragma unroll 1
        for (int chunk = 0; chunk < blocks * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            wait(&tile.dequantizing.full[packed.stage], packed.parity);
            const uint32_t codes = shared_address(tile.dequantizing.packed[packed.stage]) + thread * 16;
            const uint32_t scales = shared_address(tile.dequantizing.packed[packed.stage]) + CODE_BYTES +
                                    (Tile::FORMAT == WeightFormat::nvfp4 ? thread * 2 : thread / 2 * 2);
            auto load = [&](int i) {
                const bool exists = i / Tile::CHUNKS < heights && chunk + i % Tile::CHUNKS < b.chunks;
                return load_packed(codes + i * Tile::CHUNK_BYTES, scales + i * Tile::CHUNK_BYTES, exists);
            };
            PackedWords next = load(0);
            tile.wait_until_empty(ring);
            uint8_t* to = tile.weights[ring.stage] + row * 128;
#pragma unroll
            for (int i = 0; i < PACKED_CHUNKS; i++) {
                const PackedWords words = next;
                const RowMagnitudes entries = look_up(words, table);
                if (i + 1 < PACKED_CHUNKS) next = load(i + 1);
                uint32_t dequantized[8];
                unpack(words, entries, dequantized);
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const int piece = i % Tile::CHUNKS * 4 + s * 2 + lane / 16;
                    store_matrices(to + i / Tile::CHUNKS * (CHUNK_ROWS * 128) + (piece ^ row % 8) * 16,
                                   {dequantized[4 * s], dequantized[4 * s + 1], dequantized[4 * s + 2], dequantized[4 * s + 3]});
                }
            }
            let_copies_see_shared_memory();
            __syncwarp();
            if (lane == 0) {
                arrive(&tile.dequantizing.empty[packed.stage]);
                arrive(&tile.full[ring.stage]);
            }
            packed.advance();
            ring.advance();
        }
    }
}

// One thread copies packed weights: 128 weight rows x 128 columns, as far as they exist.
template <class Tile>
__device__ __forceinline__ void load_packed_weights(Tile& tile, int stage, const PackedMatrices& b, const Work& work, int chunk) {
    const int first = work.weight / CHUNK_ROWS;
    const uint32_t bytes = max(min(b.chunks - chunk, Tile::CHUNKS), 0) * Tile::CHUNK_BYTES;
    const bool has_second = first + 1 < b.weight_parts;
    Barrier* full = &tile.dequantizing.full[stage];
    arrive_expecting_bytes(full, has_second ? 2 * bytes : bytes);
    const uint8_t* from = b.first + ((int64_t(work.group) * b.weight_parts + first) * b.chunks + chunk) * Tile::CHUNK_BYTES;
    if (bytes == 0) return;
    load_bytes(tile.dequantizing.packed[stage][0], from, bytes, full);
    if (has_second) load_bytes(tile.dequantizing.packed[stage][1], from + int64_t(b.chunks) * Tile::CHUNK_BYTES, bytes, full);
}

// The producer: one thread, or a warp where next() of the schedule needs all lanes. It announces tiles, and copies packed weights and tokens into
// their rings, the packed weights of a stage before its tokens.
template <class Tile, class Schedule, class Operands>
__device__ __forceinline__ void load_and_announce(Tile& tile, Schedule schedule, const Operands& operands, int lane) {
    Ring<Tile::STAGES> ring;
    Ring<Tile::Dequantizing::PACKED> packed;
    int entry = 0;
    Work work, next;
    for (bool more = schedule.next(work); more; work = next) {
        more = schedule.next(next);
        if (WarpCollective<Schedule> && lane > 0) continue;
#pragma unroll 1
        for (int chunk = 0; chunk < work.end_block * PROMOTED_CHUNKS; chunk += Tile::CHUNKS) {
            wait(&tile.dequantizing.empty[packed.stage], packed.parity ^ 1);
            if (chunk == 0) tile.announced[entry] = {work.token, work.weight, work.end_token, work.group, more};
            load_packed_weights(tile, packed.stage, operands.b, work, chunk);
            packed.advance();
            tile.wait_until_empty(ring);
            arrive_expecting_bytes(&tile.full[ring.stage], operands.box_rows * 128);
            operands.load_tokens(tile, ring.stage, work, chunk);
            ring.advance();
        }
        entry = entry + 1 == Tile::COLUMNS ? 0 : entry + 1;
    }
}

// A producer warp copies scale128, as load_token_scales() does, but with fewer registers.
template <class Tile, class Schedule>
__device__ __forceinline__ void load_scales_of_rows(Tile& tile, Schedule schedule, const TokenScales& scales, int lane) {
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        const float* first = scales.of(work.token + lane, work.group, 0);
#pragma unroll 1
        for (int block = 0; block < work.end_block * (PROMOTED_CHUNKS / Tile::CHUNKS); block++, first += scales.block_stride) {
            const int rows = block < scales.blocks ? work.end_token - work.token : 0;
            uint32_t to = shared_address(tile.scales.of[ring.stage][0] + lane);
            const float* place = first;
            tile.wait_until_empty(ring);
#pragma unroll 1
            for (int token = lane; token < Tile::TOKENS; token += 32, place += 32 * scales.row_stride, to += 32 * sizeof(float))
                copy_4_bytes(to, place, token < rows);
            arrive_after_copies(&tile.full[ring.stage]);
            ring.advance();
        }
        __syncwarp();
    }
}

}  // namespace zoo
