// The pipeline of GEMMs that dequantize weights to shared memory: persistent CTAs, each warpgroup with one role. Sums are added in the same sequence
// as where weights are dequantized to registers, and promoted every 256 columns, or every 128 times scale128. Included by dequantized.cu.
// Tiles t and u, by stage:
//
//     producer          ... t8 | finds and announces tile u | u0 u1 u2 ...
//     dequantizers      ... t8 u0 u1 u2 ...
//     warpgroup 0       ... t78 ####pp####pp stores t    u01 ####pp####pp         # tensor cores: 64 tokens, then 64 more
//     warpgroup 1           ... t78 ####pp####pp stores t    u01 ####pp####pp     p promotion
#pragma once

#include <cstdint>

#include "common/dependent_launch.cuh"
#include "common/matrix_store.cuh"
#include "common/registers.cuh"
#include "gemm/hopper_w4/dequantized/by_one_warpgroup.cuh"
#include "gemm/hopper_w4/dequantized/to_workspace.cuh"
#include "gemm/hopper_w4/epilogue.cuh"

namespace zoo {

// Shared memory of a warp: some columns of D for its 16 tokens, in pieces of 16 bytes.
struct alignas(128) StagedColumns {
    static constexpr int PIECES = 2;  // of a token
    uint8_t bytes[16 * PIECES * 16];

    // Eight lanes have no bank conflicts when they write or read.
    __device__ __forceinline__ uint8_t* piece(int row, int piece) {
        return bytes + (row * PIECES + (piece ^ row * PIECES / 8 % PIECES)) * 16;
    }
};

// The factors of a lane's two rows: a_scale first, row_scale last.
struct RowFactors {
    float first[2] = {1.0f, 1.0f}, last[2];

    template <WeightFormat FORMAT>
    __device__ __forceinline__ RowFactors(const FourBitResult<FORMAT>& d, int row, int end_row) {
        const int rows[2] = {min(row, end_row - 1), min(row + 8, end_row - 1)};
        if (d.a_scale != nullptr) first[0] = d.a_scale_of(rows[0]), first[1] = d.a_scale_of(rows[1]);
        if (d.row_scale != nullptr) last[0] = d.row_scale[rows[0]], last[1] = d.row_scale[rows[1]];
    }
};

// Applies the epilogue to COUNT sums of a lane. `columns` begins with factor and bias of the first sum's weight row.
template <int COUNT, WeightFormat FORMAT>
__device__ __forceinline__ void finish_rows(const FourBitResult<FORMAT>& d, const RowFactors& rows, const float2* columns,
                                            float* sums) {
    auto each = [&](const auto& change) {
#pragma unroll
        for (int j = 0; j < COUNT; j += 4) {  // two columns of D in two rows
            const float4 two = *reinterpret_cast<const float4*>(columns + j * 2);
#pragma unroll
            for (int i = 0; i < 4; i++)
                change(sums[j + i], i / 2, i % 2 == 0 ? make_float2(two.x, two.y) : make_float2(two.z, two.w));
        }
    };
    each([&](float& sum, int h, float2 column) { sum = __fmul_rn(__fmul_rn(sum, rows.first[h]), column.x); });
    if (d.bias != nullptr) each([&](float& sum, int, float2 column) { sum = __fadd_rn(sum, column.y); });
    if (d.row_scale != nullptr)
#pragma unroll
        for (int j = 0; j < COUNT; j++) sums[j] = __fmul_rn(sums[j], rows.last[j / 2 % 2]);
}

// Called by a warpgroup for 64 tokens. `row` of D is the first token, `column` the tile's first weight row.
template <int SUMS, WeightFormat FORMAT>
__device__ __forceinline__ void finish_and_store_rows(const FourBitResult<FORMAT>& d, StagedColumns& staged,
                                                      const float2* columns, int row, int end_row, int column,
                                                      float (&sums)[SUMS]) {
    // COUNT: sums stored at a time. ROWS: rows that a warp writes at a time.
    constexpr int PIECES = StagedColumns::PIECES, COUNT = PIECES * 4, ROWS = 32 / PIECES;
    const int thread = reread_thread_index(), lane = thread % 32;
    row += thread % WARPGROUP / 32 * 16;
    if (row >= end_row) return;
    const RowFactors factors(d, row + lane / 4, end_row);
    columns += lane % 4 * 2;
    uint8_t* place = d.d + ((row + lane / PIECES) * d.stride + column + lane % PIECES * 8) * 2;
    const int rows = end_row - row - lane / PIECES, left = d.columns - column - lane % PIECES * 8;
#pragma unroll
    for (int first = 0; first < SUMS; first += COUNT) {
        finish_rows<COUNT>(d, factors, columns + first * 2, sums + first);
        __syncwarp();  // the previous columns have been read
#pragma unroll
        for (int i = 0; i < PIECES / 2; i++) {  // 16 rows x 16 columns
            const float* eight = sums + first + i * 8;
            store_matrices(staged.piece(lane % 16, 2 * i + lane / 16),
                           {d.encode(eight[0], eight[1]), d.encode(eight[2], eight[3]), d.encode(eight[4], eight[5]),
                            d.encode(eight[6], eight[7])});
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PIECES / 2; i++) {
            const uint4 eight = *reinterpret_cast<const uint4*>(staged.piece(i * ROWS + lane / PIECES, lane % PIECES));
            if (i * ROWS < rows && first * 2 < left)
                *reinterpret_cast<uint4*>(place + i * ROWS * 2 * d.stride + first * 4) = eight;
        }
    }
}

template <class Tile, class Schedule>
struct DequantizedPipeline {
    static constexpr int SUMS = Tile::SUMS, PASSES = Tile::PASSES, STAGES_PER_PROMOTION = Tile::STAGES_PER_PROMOTION;

    Tile tile;
    StagedColumns staged[Tile::MATH_WARPS];

    // Each role makes its own schedule and workspace, so that none of their values is in registers when registers are reallocated.
    template <class Operands, class Result, class MakeWorkspace = Nothing>
    __device__ __forceinline__ void run(const auto& make_schedule, const Operands& operands, const GatheredRows&, const Result& d,
                                        const MakeWorkspace& make_workspace = {}) {
        let_next_kernel_launch();
        tile.initialise();
        if (threadIdx.x == 0) prefetch(operands.a);
        operands.clear_missing_tokens(tile);
        __syncthreads();
        wait_for_previous_kernel();

        const int role = warpgroup_index() - Tile::WARPGROUPS, thread = reread_thread_index() % WARPGROUP;
        if (role == (Tile::Dequantizing::ONCE ? 0 : 1)) {
            lower_registers_to<Tile::Dequantizing::LOADER_REGISTERS>();
            load(make_schedule, operands, d, thread, make_workspace);
            return;
        }
        Work work;  // the first tile; the producer announces the others
        if (!Schedule(make_schedule()).next(work)) return;
        const int stages = work.end_block * PROMOTED_CHUNKS / Tile::CHUNKS;
        if constexpr (!Tile::Dequantizing::ONCE) {
            if (role == 0) {
                lower_registers_to<Tile::Dequantizing::DEQUANTIZER_REGISTERS>();
                dequantize_weights(tile, stages, operands.b, d, thread);
                return;
            }
        }
        raise_registers_to<Tile::Dequantizing::MATH_REGISTERS>();
        multiply_tiles(d, stages / STAGES_PER_PROMOTION);
    }

    // The producer warpgroup: each warp has one job.
    template <class Operands, class Result, class MakeWorkspace>
    __device__ __forceinline__ void load(const auto& make_schedule, const Operands& operands, const Result& d, int thread,
                                         const MakeWorkspace& make_workspace) {
        const int warp = thread / 32, lane = thread % 32;
        if (warp == 0) {
            if constexpr (Tile::Dequantizing::ONCE)
                load_from_workspace(tile, operands, make_workspace(), d, lane);
            else if (WarpCollective<Schedule> || lane == 0)
                load_and_announce(tile, Schedule(make_schedule()), operands, lane);
        } else if (Tile::SCALED && warp == 1) {
            if constexpr (Tile::SCALED) load_scales_of_rows(tile, Schedule(make_schedule()), operands.scales, lane);
        } else if (warp >= 2) {
            if constexpr (Tile::Dequantizing::ONCE) workspace_writer(tile, operands.b, make_workspace(), warp - 2).run();
        }
    }

    // Starts the wgmmas of a stage. `row` is the first of 64 tokens. Callers compute it once: it and all descriptors then stay in uniform registers.
    __device__ __forceinline__ void start(int stage, int row, float (&sums)[SUMS], bool begins) {
        const uint64_t a = matrix_descriptor(tile.tokens[stage][0] + row * 128), b = matrix_descriptor(tile.weights[stage]);
#pragma unroll
        for (int step = 0; step < 128 / WGMMA_DEPTH; step++)
            multiply<Tile::WEIGHTS>(sums, a + 2 * step, b + 2 * step, step > 0 || !begins);
        commit_multiplications();
    }

    // Starts one pass (64 tokens) of the stages that are promoted together. Each stage is a group of wgmmas.
    __device__ __forceinline__ void start_pass(const Ring<Tile::STAGES>& ring, int first_row, int pass, float (&partial)[SUMS]) {
        hold(partial);
        fence_registers();
        Ring<Tile::STAGES> of = ring;
#pragma unroll
        for (int i = 0; i < STAGES_PER_PROMOTION; i++, of.advance())
            start(of.stage, first_row + pass * WGMMA_ROWS, partial, i == 0);
        hold(partial);
    }
    __device__ __forceinline__ void promote(const Ring<Tile::STAGES>& ring, int first_row, int pass, float (&partial)[SUMS],
                                            float (&sums)[SUMS]) {
        float scales[2];
        if constexpr (Tile::SCALED) {
            const float* of =
                tile.scales.of[ring.stage][0] + first_row + pass * WGMMA_ROWS + accumulator_row(0, reread_thread_index());
            scales[0] = of[0];
            scales[1] = of[8];
        }
        Ring<Tile::STAGES> done = ring;
        if (STAGES_PER_PROMOTION == 2 && pass == PASSES - 1) {
            wait_for_multiplications<1>();
            tile.release(done.stage);
            done.advance();
        }
        wait_for_multiplications<0>();
        hold(partial);
        if (pass == PASSES - 1) tile.release(done.stage);
#pragma unroll
        for (int j = 0; j < SUMS; j++)
            sums[j] = Tile::SCALED ? __fmaf_rn(partial[j], scales[j / 2 % 2], sums[j]) : __fadd_rn(sums[j], partial[j]);
    }
    __device__ __forceinline__ void wait_for_stages(Ring<Tile::STAGES> ring) {
#pragma unroll
        for (int i = 0; i < STAGES_PER_PROMOTION; i++, ring.advance()) tile.wait_until_full(ring);
    }
    __device__ __forceinline__ void advance_stages(Ring<Tile::STAGES>& ring) {
#pragma unroll
        for (int i = 0; i < STAGES_PER_PROMOTION; i++) ring.advance();
    }

    // Multiplies all tiles, each with `promotions` promotions. The first wgmmas of a tile run while the previous tile is stored.
    template <class Result>
    __device__ __forceinline__ void multiply_tiles(const Result& d, int promotions) {
        const int first_row = warpgroup_index() * (PASSES * WGMMA_ROWS);
        Ring<Tile::STAGES> ring;
        float partial[SUMS];
        wait_for_stages(ring);
        start_pass(ring, first_row, 0, partial);
        for (;;) {
            const bool more = __any_sync(0xFFFFFFFF, tile.announced[tile.entry_of_warp()].more);
            float sums[PASSES][SUMS];
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++)
#pragma unroll
                for (int j = 0; j < SUMS; j++) sums[pass][j] = 0;
            auto multiply_and_promote = [&](bool is_started) {
#pragma unroll
                for (int pass = 0; pass < PASSES; pass++) {
                    if (pass > 0 || !is_started) start_pass(ring, first_row, pass, partial);
                    promote(ring, first_row, pass, partial, sums[pass]);
                }
                advance_stages(ring);
            };
            multiply_and_promote(true);
#pragma unroll 2
            for (int left = promotions - 1; left > 0; left--) {
                wait_for_stages(ring);
                multiply_and_promote(false);
            }
            if (!more) {
                store(d, sums);
                break;
            }
            if constexpr (!Tile::Dequantizing::ONCE)
                store(d, sums);  // before the next wgmmas: registers do not suffice for both at once
            wait_for_stages(ring);
            start_pass(ring, first_row, 0, partial);
            if constexpr (Tile::Dequantizing::ONCE) store(d, sums);
            __syncwarp();  // otherwise ptxas assumes divergence and moves each descriptor to uniform registers again
        }
    }

    template <class Result>
    __device__ __forceinline__ void store(const Result& d, float (&sums)[PASSES][SUMS]) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int entry = tile.entry_of_warp();
            const AnnouncedTile& done = tile.announced[entry];
            finish_and_store_rows(d, staged[reread_thread_index() / 32], tile.columns[entry],
                                  done.token + (reread_thread_index() / WARPGROUP * PASSES + pass) * WGMMA_ROWS, done.end_token,
                                  done.weight, sums[pass]);
        }
        tile.advance_entry_of_warp();
    }
};

}  // namespace zoo
