// Groups that lie along K, as weight gradients contract them: D of a group = A (M, its rows of K) B (N, its rows of K)^T.
//
// Blocks of 128 begin anew with every group, wherever that is, and so do their scales, of which both A and B have one for each
// row and block. A group's last block is cut where the group ends:
//
//     K            |    group 0    |  group 1     | nobody's
//     blocks       |  0  |  1  | 2 |  3  |  4  | 5|
//     copied       |=====|=====|=====                       128 of K always, so the last copy brings what is not the group's
//                                  |=====|=====|=====
//
// What is not the group's may be NaN in both operands, so it is overwritten with zeros in shared memory first:
//
//     copying thread     says how much of a block is the group's, and announces its bytes on `landed` in place of `full`
//     cutting warp       waits for `landed`, writes zeros if need be, and arrives at `full`
//
// Scales come as boxes of f32. Where they are bytes, whose rows begin at multiples of 4 bytes, no box takes them:
//
//     copying thread     says which block it is, and arrives at `asked`
//     byte warp          waits for `asked`, loads bytes; at the next block it stores f32 of them, and arrives at `landed`, too
//
// The multiplying warps know nothing of it, and the loading ones are a ring of stages ahead. The other two know nothing of
// groups: 24 registers are all that the loading warps keep. The copy engine wants coordinates at multiples of 16 bytes, so groups
// begin at such rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/dependent_launch.cuh"
#include "common/e8m0.cuh"
#include "common/mbarrier.cuh"
#include "common/registers.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/pipeline/fp8b128_tile.cuh"
#include "gemm/load/operands.cuh"
#include "gemm/pipeline/parked.cuh"
#include "gemm/epilogue/store_rows.cuh"
#include "gemm/schedule/tile_order.cuh"
#include "gemm/mainloop/two_scales.cuh"

namespace zoo {

// A block of K is a row of scales. Nobody but the cutting warp arrives at `full`.
template <int TOKENS, int WEIGHTS, int STAGES, int WARPGROUPS, int HELD>
struct TileAlongK : Fp8b128Tile<TOKENS, WEIGHTS, STAGES, WARPGROUPS, false, false, 1> {
    static constexpr uint32_t FULL_ARRIVALS = 1;
    static constexpr bool HUNGRY = true;
    static constexpr int LOADER_REGISTERS = WARPGROUPS == 2 ? 24 : 32, MATH_REGISTERS = WARPGROUPS == 2 ? 240 : 160;
    static constexpr int THREADS = (WARPGROUPS + 1) * 128, REGISTERS_AT_LAUNCH = 65536 / THREADS / 8 * 8;
    static_assert(LOADER_REGISTERS + WARPGROUPS * MATH_REGISTERS <= (WARPGROUPS + 1) * REGISTERS_AT_LAUNCH,
                  "a CTA that asks for more than it was started with waits for ever");
    // Pairs of columns' scales that are loaded before promotion begins, and stay in registers for a second wave; and how many
    // pairs before they are used the others are loaded.
    static constexpr int COLUMNS_HELD = HELD, COLUMNS_AHEAD = WARPGROUPS == 2 ? 4 : 2;
    static constexpr bool IN_TURN = WARPGROUPS == 2;
    static_assert(!IN_TURN || TOKENS % (2 * WARPGROUPS * WGMMA_ROWS) == 0,
                  "an even number of waves: the same warpgroup begins every block");
    static constexpr int NO_MORE = -1;

    struct alignas(16) Block {
        int kept;  // of its 128 of K; NO_MORE after the last block
        int token, weight, number;
    };

    // 128 sums and 64 partial sums leave 48 of 240 registers for 28 of columns and all the rest. What a multiplying warp needs
    // only after its tile's loop waits in shared memory meanwhile.
    struct InTurn {
        Barrier turn[2];  // of either warpgroup, to start a wave
        alignas(16) int parked[WARPGROUPS * 4][8];
    };
    struct Nothing {};

    alignas(1024) Barrier asked[STAGES], landed[STAGES];
    [[no_unique_address]] std::conditional_t<IN_TURN, InTurn, Nothing> in_turn;
    Block blocks[STAGES];

    __device__ __forceinline__ void initialise(bool has_bytes) {
        this->initialise_ring(FULL_ARRIVALS);
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            zoo::initialise(&asked[stage], 1);
            zoo::initialise(&landed[stage], has_bytes ? 2 : 1);
        }
        if constexpr (IN_TURN) {
            zoo::initialise(&in_turn.turn[0], WARPGROUP / 32);
            zoo::initialise(&in_turn.turn[1], WARPGROUP / 32);
        }
    }

    // Turns are counted by either warpgroup, an even number for each block. Turn 0 of the first is nobody's to pass on.
    __device__ __forceinline__ void wait_for_turn(int own, int turn_number) {
        wait(&in_turn.turn[own], own == 0 ? turn_number % 2 ^ 1 : turn_number % 2);
    }
    __device__ __forceinline__ void pass_turn(int own) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&in_turn.turn[own ^ 1]);
    }

    // By a warp: of 128 bytes of every row, all but the first `kept` become zero.
    __device__ __forceinline__ void cut(int stage, int kept) {
#pragma unroll 1
        for (int row = threadIdx.x % 32; row < TOKENS + WEIGHTS; row += 32) {
            uint8_t* line =
                row < TOKENS ? this->tokens[stage] + row * SCALE_BLOCK : this->weights[stage] + (row - TOKENS) * SCALE_BLOCK;
#pragma unroll 1
            for (int first = kept / 16 * 16; first < SCALE_BLOCK; first += 16) {
                uint4* piece = reinterpret_cast<uint4*>(line + (first ^ row % 8 * 16));
                const uint4 old = *piece;
                *piece = make_uint4(first_bytes(old.x, kept - first), first_bytes(old.y, kept - first - 4),
                                    first_bytes(old.z, kept - first - 8), first_bytes(old.w, kept - first - 12));
            }
        }
        let_copies_see_shared_memory();
    }

   private:
    static __device__ __forceinline__ uint32_t first_bytes(uint32_t word, int count) {
        return count <= 0 ? 0 : count >= 4 ? word : word & (1u << 8 * count) - 1;
    }
};

// A (M, K) and B (N, K), and their scales (blocks, M) and (blocks, N); the maps of these are of f32.
template <class Tile>
struct OperandsAlongK {
    const TensorMap &a, &b, &map_of_a_scales, &map_of_b_scales;
    Scales a_scales, b_scales;

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
        prefetch(map_of_a_scales);
        prefetch(map_of_b_scales);
    }

    // By one thread: `row` of K is the first of a block, of which `rows` are the group's.
    __device__ __forceinline__ void load_block(Tile& tile, int stage, const Work& work, int block, int row, int rows) const {
        Barrier* landed = &tile.landed[stage];
        tile.blocks[stage] = {rows, work.token, work.weight, block};
        if (has_bytes(*this)) arrive(&tile.asked[stage]);
        arrive_expecting_bytes(landed, Tile::TOKENS * (SCALE_BLOCK + (a_scales.are_bytes ? 0 : 4)) +
                                           Tile::WEIGHTS * (SCALE_BLOCK + (b_scales.are_bytes ? 0 : 4)));
        load_box(tile.weights[stage], b, row, work.weight, landed);
        load_box(tile.tokens[stage], a, row, work.token, landed);
        if (!a_scales.are_bytes) load_box(tile.token_scales[stage], map_of_a_scales, work.token, block, landed);
        if (!b_scales.are_bytes) load_box(tile.weight_scales[stage], map_of_b_scales, work.weight, block, landed);
    }

    // A lane's of a block, four in a word. By a warp, as what follows.
    struct Words {
        uint32_t of_tokens[(Tile::TOKENS + 127) / 128], of_weights[(Tile::WEIGHTS + 127) / 128];
    };
    __device__ __forceinline__ void read_bytes(Words& words, const typename Tile::Block& block) const {
        if (a_scales.are_bytes) read_bytes(words.of_tokens, a_scales, block.token, block.number);
        if (b_scales.are_bytes) read_bytes(words.of_weights, b_scales, block.weight, block.number);
    }
    __device__ __forceinline__ void store_f32(Tile& tile, int stage, const Words& words) const {
        if (a_scales.are_bytes) store_f32(tile.token_scales[stage], words.of_tokens);
        if (b_scales.are_bytes) store_f32(tile.weight_scales[stage], words.of_weights);
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&tile.landed[stage]);
    }

   private:
    // Rows of bytes begin at words; behind the last row of them nothing is read.
    template <int COUNT>
    static __device__ __forceinline__ void read_bytes(uint32_t (&words)[COUNT], const Scales& scales, int first_row, int block) {
        const int row = first_row + threadIdx.x % 32 * 4;
        const uint8_t* from = scales.first + block * scales.block_stride + row;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int rows = scales.rows - row - i * 128;
            words[i] = 0;
            if (rows >= 4) {
                words[i] = read_scale(from + i * 128, false);
            } else {
#pragma unroll 1
                for (int byte = 0; byte < rows; byte++) words[i] |= read_scale(from + i * 128 + byte, true) << byte * 8;
            }
        }
    }
    template <int ROWS, int COUNT>
    static __device__ __forceinline__ void store_f32(float (&to)[ROWS], const uint32_t (&words)[COUNT]) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int row = threadIdx.x % 32 * 4 + i * 128;
            const uint32_t four = words[i];
            if (row < ROWS)
                *reinterpret_cast<float4*>(to + row) = make_float4(e8m0_value(four & 255), e8m0_value(four >> 8 & 255),
                                                                   e8m0_value(four >> 16 & 255), e8m0_value(four >> 24));
        }
    }
};

// By the loading warps: the first copies, the second cuts and passes on, the third brings what is bytes.
template <class Tile, class Order>
__device__ __forceinline__ void load(Tile& tile, Order order, const OperandsAlongK<Tile>& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    Ring<Tile::STAGES> ring;
    if (thread == 0) {
        for (Work work; order.next(work);) {
            int block = work.first_block;
            for (int row = work.first_row; row < work.end_row; row += SCALE_BLOCK, block++, ring.advance()) {
                tile.wait_until_empty(ring);
                operands.load_block(tile, ring.stage, work, block, row, min(SCALE_BLOCK, work.end_row - row));
            }
        }
        tile.wait_until_empty(ring);
        tile.blocks[ring.stage] = {Tile::NO_MORE, 0, 0, 0};
        if (has_bytes(operands)) arrive(&tile.asked[ring.stage]);
        arrive(&tile.landed[ring.stage]);
    } else if (thread / 32 == 1) {
        for (;; ring.advance()) {
            wait(&tile.landed[ring.stage], ring.parity);
            const int kept = tile.blocks[ring.stage].kept;
            if (kept == Tile::NO_MORE) break;
            if (kept < SCALE_BLOCK) tile.cut(ring.stage, kept);
            __syncwarp();  // all lanes have read `kept`
            if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
        }
    } else if (thread / 32 == 2 && has_bytes(operands)) {
        typename OperandsAlongK<Tile>::Words words;
        for (int before = -1;; before = ring.stage, ring.advance()) {
            wait(&tile.asked[ring.stage], ring.parity);
            const typename Tile::Block block = tile.blocks[ring.stage];
            const typename OperandsAlongK<Tile>::Words old = words;
            if (block.kept != Tile::NO_MORE) operands.read_bytes(words, block);
            if (before >= 0) operands.store_f32(tile, before, old);
            if (block.kept == Tile::NO_MORE) break;
        }
        if (thread % 32 == 0) arrive(&tile.landed[ring.stage]);
    }
}

// Persistent CTAs; every group has a D of the same size, M x N. The copying thread and the multiplying warps walk along the
// groups, since a group's first block is known only from the sizes before it.
template <class Tile, int BAND>
struct OrderAlongK {
    const int* ends;
    int count, M, N;   // groups; the size of D
    bool leave_empty;  // no tiles for groups without rows of K
    int index = blockIdx.x;
    int group = -1, first_row = 0, end_row = 0, first_block = 0;

    __device__ __forceinline__ OrderAlongK(const int* ends, int count, int M, int N, bool leave_empty)
        : ends(ends), count(count), M(M), N(N), leave_empty(leave_empty) {}

    __device__ __forceinline__ bool next(Work& work) {
        const int rows = tiles_of(M, Tile::TOKENS), columns = tiles_of(N, Tile::WEIGHTS), each = rows * columns;
        for (;; index += gridDim.x) {
            while (index >= (group + 1) * each) {
                if (++group >= count) return false;
                first_block += tiles_of(end_row - first_row, SCALE_BLOCK);
                first_row = end_row;
                end_row = ends[group];
            }
            if (!leave_empty || end_row > first_row) break;
        }
        const Banded<BAND> place(index - group * each, rows, columns);
        const int end_block = first_block + tiles_of(end_row - first_row, SCALE_BLOCK);
        work = {place.row * Tile::TOKENS, place.column * Tile::WEIGHTS, M, group, first_block, end_block, first_row, end_row};
        index += gridDim.x;
        return true;
    }
};

// D (G, M, N). Boxes of 16 rows x 128 bytes go there by the copy engine: a warp goes on to its next tile meanwhile. What f32 is
// added to is added by the L2 cache: nothing waits for what was there.
template <class D>
struct MatrixOfEachGroup {
    const TensorMap& map;  // of words of 4 bytes
    Matrix<D> first;
    int64_t group_stride;
    bool accumulate;

    __device__ __forceinline__ Matrix<D> of(int group) const {
        Matrix<D> matrix = first;
        matrix.first += group * group_stride * BYTES<D>;
        return matrix;
    }
};

// What a warp's copies to D read: pieces of ROWS_ rows x 128 bytes, the 16 bytes of column c of row r at c ^ (r % 8).
//
// With one piece of 16 rows, 2 KiB a warp, a warp waits for every copy before it writes the next. With three of 8 rows, 3 KiB,
// the copy engine reads two of them while the third is written. A fourth would not fit beside four stages: 229376 bytes of 232448
// are taken, and eight warps would want 8192 more.
template <int PIECES_, int ROWS_>
struct alignas(1024) StagedPieces {
    static constexpr int PIECES = PIECES_, ROWS = ROWS_;
    uint8_t bytes[PIECES][ROWS * 128];

    __device__ __forceinline__ uint8_t* at(int piece, int row, int column) {
        return bytes[piece] + row * 128 + (column ^ (ROWS == 8 ? row : row % 8)) * 16;
    }

    // By one thread, before piece `count` of a tile is written.
    static __device__ __forceinline__ void wait_until_free(int count) {
        if constexpr (PIECES == 1) {
            wait_until_stores_have_read();
        } else if (count == 0) {  // the other pieces, too, of the tile before
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        } else {
            asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PIECES - 1) : "memory");
        }
    }
    // By that thread, after the copy: one group each.
    static __device__ __forceinline__ void close_copy() {
        if constexpr (PIECES > 1) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
};

// 128 bytes of a warp's sums in ROWS of its 16 rows, from column part * 128 / BYTES<D> and row half * 8 on.
template <class D, class Staged, int SUMS>
__device__ __forceinline__ void stage(Staged& staged, int piece, int part, int half, const float (&sums)[SUMS], int lane) {
    constexpr int ROWS = Staged::ROWS, BELOW = ROWS / 8, BESIDE = 4 / BELOW;
    if constexpr (BYTES<D> == 2) {  // four matrices of 8 x 8, BELOW below each other and BESIDE beside
#pragma unroll
        for (int i = 0; i < 8 / BESIDE; i++) {
            uint32_t matrices[4];
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const float* two = &sums[part * 32 + (i * BESIDE + m / BELOW) * 4 + (half + m % BELOW) * 2];
                matrices[m] = encode_pair<D>(two[0], two[1]);
            }
            store_matrices(staged.at(piece, lane % ROWS, BESIDE * i + lane / ROWS), matrices);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float* four = &sums[part * 16 + i * 4];
#pragma unroll
            for (int below = 0; below < BELOW; below++) {
                uint8_t* place = staged.at(piece, lane / 4 + 8 * below, 2 * i + lane % 4 / 2) + lane % 2 * 8;
                *reinterpret_cast<float2*>(place) = make_float2(four[2 * (half + below)], four[2 * (half + below) + 1]);
            }
        }
    }
}

template <int WAVE, class D, class Staged, int SUMS>
__device__ __forceinline__ void store(const MatrixOfEachGroup<D>& d, Staged& staged, const Work& work, int row,
                                      float (&sums)[SUMS]) {
    constexpr bool ADDED_BY_L2 = BYTES<D> == 4;
    constexpr int PARTS = SUMS * 2 * BYTES<D> / 128, HALVES = 16 / Staged::ROWS;
    if (d.accumulate && !ADDED_BY_L2) add_rows(sums, d.of(work.group), work.token + row, work.end_token, work.weight);
    const int thread = thread_index_anew(), lane = thread % 32;
    const int first_row = work.token + row + thread % WARPGROUP / 32 * 16;
    const MatrixOfMap matrix{d.map, work.group};
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const int count = (WAVE * PARTS + part) * HALVES + half, piece = count % Staged::PIECES;
            if (lane == 0) Staged::wait_until_free(count);
            __syncwarp();
            stage<D>(staged, piece, part, half, sums, lane);
            let_copies_see_shared_memory();
            __syncwarp();
            if (lane == 0) {
                const int column = work.weight * BYTES<D> / 4 + part * 32;
                if (d.accumulate && ADDED_BY_L2)
                    add_box(matrix, staged.bytes[piece], column, first_row + half * 8);
                else
                    store_box(matrix, staged.bytes[piece], column, first_row + half * 8);
                Staged::close_copy();
            }
        }
}

// Not a loop: it would be too long for the compiler to unroll, and then index registers.
template <class D, class Staged, int WAVES, int SUMS>
__device__ __forceinline__ void store_waves(const MatrixOfEachGroup<D>& d, Staged& staged, const Work& work, int row,
                                            float (&sums)[WAVES][SUMS]) {
    static_assert(WAVES <= 2);
    store<0>(d, staged, work, row, sums[0]);
    if constexpr (WAVES == 2) store<1>(d, staged, work, row + WGMMA_ROWS, sums[1]);
}

// What a warpgroup's sums go to, through a warp's staged pieces.
template <class Target, class Tile, class Staged>
concept StoresSumsAlongK = requires(const Target& target, Staged& staged, const Work& work,
                                    float (&sums)[Tile::WAVES][Tile::SUMS]) { store_waves(target, staged, work, 0, sums); };

// What brings a block of K, whose scales are of every row of A and B.
template <class Operands, class Tile>
concept BringsBlocksOf = requires(const Operands& operands, Tile& tile, const Work& work) {
    operands.prefetch_maps();
    operands.load_block(tile, 0, work, 0, 0, 0);
};

// The multiplication of a tile, while what its warps do not need waits elsewhere.
template <class Tile, class Order>
__device__ __forceinline__ void multiply_parked(Tile& tile, Ring<Tile::STAGES>& ring, Order& order, Work& work,
                                                float (&sums)[Tile::WAVES][Tile::SUMS]) {
    int numbers[8] = {order.index, order.group, order.end_row, order.first_row, work.token, work.weight, work.group, 0};
    park(tile.in_turn.parked[thread_index_anew() / 32], numbers);
    multiply(tile, ring, work.end_block - work.first_block, sums);
    fetch(tile.in_turn.parked[thread_index_anew() / 32], numbers);
    order.index = numbers[0], order.group = numbers[1], order.end_row = numbers[2], order.first_row = numbers[3];
    work.token = numbers[4], work.weight = numbers[5], work.group = numbers[6], work.end_token = order.M;
}

// Persistent CTAs, as ManyTokens.
template <class Tile, class Staged>
struct AlongK {
    Tile tile;
    Staged staged[Tile::MATH_WARPS];

    template <TileOrder Order, BringsBlocksOf<Tile> Operands, StoresSumsAlongK<Tile, Staged> Target>
    __device__ __forceinline__ void run(Order order, const Operands& operands, const Target& d) {
        let_next_kernel_launch();
        if (threadIdx.x == 0) {
            operands.prefetch_maps();
            tile.initialise(has_bytes(operands));
        }
        __syncthreads();
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            keep_registers<Tile::LOADER_REGISTERS>();
            load(tile, order, operands);
        } else {
            take_registers<Tile::MATH_REGISTERS>();
            constexpr int ROWS = Tile::ROW_WAVES * WGMMA_ROWS;  // of a warpgroup
            const int first_row = Tile::IN_TURN ? 0 : warpgroup_index() * ROWS;
            Ring<Tile::STAGES> ring;
            for (Work work; order.next(work);) {
                float sums[Tile::WAVES][Tile::SUMS];
                if constexpr (Tile::IN_TURN) {  // without a register even for first_row
                    multiply_parked(tile, ring, order, work, sums);
                    const int thread = thread_index_anew();
                    store_waves(d, staged[thread / 32], work, thread / WARPGROUP * ROWS, sums);
                } else {
                    multiply(tile, ring, work.end_block - work.first_block, sums);
                    store_waves(d, staged[thread_index_anew() / 32], work, first_row, sums);
                }
            }
        }
    }
};

}  // namespace zoo
