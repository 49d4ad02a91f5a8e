// All CTAs dequantize all packed weights once, to e4m3 in a workspace, and copy their weights from there: from L2. Many tokens need each weight in many
// tiles, and dequantizing it for each tile would take time from the tensor cores. Included by dequantized/pipeline.cuh.
//
//     dequantizing warps   draw a ticket for a unit, 128 weight rows x 128 columns; dequantize it into the workspace; mark it as ready. They run at
//                          most UNITS_AHEAD units ahead of the units that their CTA multiplies
//     producer warp        waits until a unit is ready, then copies its 16 KB into a stage
//
// A dequantizing warp waits only for tiles of its own CTA, which need earlier units only: no deadlock. The workspace may hold any bytes before:
// CTA 0 clears the ticket queue, and changes its generation until all CTAs have seen the change (ticket_queue.cuh). So at least two
// CTAs of the grid must be resident together.
#pragma once

#include <climits>
#include <cstdint>

#include "common/matrix_store.cuh"
#include "gemm/hopper_w4/dequantized/tile.cuh"
#include "gemm/hopper_w4/epilogue.cuh"
#include "gemm/hopper_w4/operands.cuh"
#include "gemm/hopper_w4/dequantized/ticket_queue.cuh"
#include "gemm/schedule/grouped_schedule.cuh"

namespace zoo {

// A walk along the groups that have rows, for a whole warp. A step looks at 32 groups, one in each lane, and reads their rows again each time. The
// position is in shared memory, because registers are few. One matrix (ends_or_counts is null) is one group.
template <int TOKENS>
struct NonemptyGroups {
    static constexpr uint32_t ALL = 0xFFFFFFFF;

    GroupRows groups;
    int count;

    struct Step : GroupStep {
        int begin, end;  // rows of this lane's group
        uint32_t have_rows;

        __device__ __forceinline__ int tiles() const { return ceil_div(end - begin, TOKENS); }
    };
    // Finds the first step from `at` on that is_right() accepts.
    __device__ __forceinline__ bool find(GroupStep& at, Step& step, const auto& is_right) const {
        static_cast<GroupStep&>(step) = at;
        for (;;) {
            if (step.first >= count) return false;
            const int group = step.first + reread_thread_index() % 32;
            step.begin = step.end = 0;
            if (groups.ends_or_counts == nullptr)
                step.end = group == 0 ? groups.rows : 0;
            else if (group < count)
                groups.find(group, step.begin, step.end);
            step.have_rows = __ballot_sync(ALL, step.end > step.begin);
            if (is_right(step)) break;
            step.first += 32;
            step.before += __popc(step.have_rows);
            step.tiles_before += __reduce_add_sync(ALL, step.tiles());
        }
        __syncwarp();
        if (reread_thread_index() % 32 == 0) at = step;
        __syncwarp();
        return true;
    }
};

// The workspace: units in the layout of a stage, by group, tile column and K; then the ticket queue. Tickets follow the sequence in which concurrent
// CTAs need units: the first units along K of all tile columns that run concurrently, then the second ones, and so on.
template <int TOKENS, int BAND>
struct Workspace {
    static constexpr int UNIT_BYTES = 128 * 128, UNITS_AHEAD = 1024;  // 16 MB, which fit into L2
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    using Groups = NonemptyGroups<TOKENS>;

    uint8_t* weights;
    Groups groups;
    int columns, stages, box_rows;  // tiles of 128 weight rows; units along K; rows of a tile of one matrix

    __device__ __forceinline__ int units() const { return groups.count * columns * stages; }
    __device__ __forceinline__ TicketQueue queue() const {
        int before = units();
        asm volatile("" : "+r"(before));  // computed again for each use: saves a register
        return {reinterpret_cast<uint32_t*>(weights + int64_t(before) * UNIT_BYTES)};
    }
    // The tile columns of a group that run concurrently, where it has `tiles` tiles of rows.
    static __device__ __forceinline__ int width(int tiles) { return ceil_div(gridDim.x, min(tiles, BAND)); }

    // Finds the unit of a ticket; returns false where there is none. The group is found once for all of its units.
    __device__ __forceinline__ bool find(UnitPosition& at, const PackedMatrices& b, int ticket, DequantizedUnit& unit) const {
        if (ticket - at.first_ticket >= columns * stages && !find_group(at, ticket / (columns * stages))) return false;
        ticket -= at.first_ticket;
        const int band = ticket / (at.width * stages), first = band * at.width, own = min(at.width, columns - first);
        ticket -= first * stages;
        const int stage = ticket / own, column = first + ticket - stage * own;
        unit = {(at.group * columns + column) * stages + stage, (at.group * b.weight_parts + 2 * column) * b.chunks + 2 * stage,
                b.weight_parts - 2 * column, b.chunks - 2 * stage};
        return true;
    }
    // Finds tile `index` in the sequence of MatrixOrGroupsSchedule; returns false where there is none.
    __device__ __forceinline__ bool find(GroupStep& at, int index, TileAndUnits& work) const {
        const bool is_one = groups.groups.ends_or_counts == nullptr;
        const int next = index + gridDim.x;
        int group = 0, ordinal = 0, begin = 0, end = groups.groups.rows, end_index = ceil_div(end, TOKENS) * columns;
        work.tile.more = next < end_index;
        if (is_one) {
            if (index >= end_index) return false;
        } else {
            typename Groups::Step step;
            if (!find_step(at, index, step, end_index)) return false;
            const int lane = __ffs(__ballot_sync(ALL, index < end_index)) - 1, last_index = __shfl_sync(ALL, end_index, 31);
            group = step.first + lane;
            ordinal = step.before + __popc(step.have_rows & (1u << lane) - 1);
            begin = __shfl_sync(ALL, step.begin, lane), end = __shfl_sync(ALL, step.end, lane);
            end_index = __shfl_sync(ALL, end_index, lane);
            int end_of_next;
            work.tile.more = next < last_index || find_step(at, next, step, end_of_next);
        }
        const int rows = ceil_div(end - begin, TOKENS), within = index - end_index + rows * columns,
                  high = is_one ? box_rows : TOKENS;
        const BandedTile<BAND> place(within, rows, columns);
        work.units_a_stage = width(rows);
        // The column of the last concurrent tile.
        const int last = (within - int(blockIdx.x) + int(gridDim.x) - 1) / min(rows, BAND);
        const int before = place.row >= BAND || last >= columns ? columns : last / work.units_a_stage * work.units_a_stage;
        work.units_before = (ordinal * columns + before) * stages;
        work.tile.token = begin + place.row * high;
        work.tile.weight = place.column * 128;
        work.tile.end_token = min(end, work.tile.token + high);
        work.tile.group = group;
        return true;
    }

   private:
    __device__ __forceinline__ bool find_group(UnitPosition& at, int ordinal) const {
        typename Groups::Step step;
        if (!groups.find(at.step, step, [&](const auto& step) { return ordinal < step.before + __popc(step.have_rows); }))
            return false;
        const uint32_t own = 1u << reread_thread_index() % 32;
        const bool is_it = (step.have_rows & own) != 0 && __popc(step.have_rows & own - 1) == ordinal - step.before;
        if (is_it) {
            at.group = step.first + reread_thread_index() % 32;
            at.width = width(step.tiles());
            at.first_ticket = ordinal * columns * stages;
        }
        __syncwarp();
        return true;
    }
    // Finds the step of a tile, and the index after the last tile of this lane's group.
    __device__ __forceinline__ bool find_step(GroupStep& at, int index, typename Groups::Step& found, int& end_index) const {
        return groups.find(at, found, [&](const auto& step) {
            end_index = (step.tiles_before + sum_of_lanes_up_to_this(step.tiles())) * columns;
            return index < __shfl_sync(ALL, end_index, 31);
        });
    }
};

// A dequantizing warp. A unit is two pieces of 64 weight rows, and each piece has a buffer for its packed bytes. A buffer is filled for the next unit
// as soon as its piece is dequantized.
template <class Tile, class Workspace_>
struct WorkspaceWriter {
    static constexpr int PIECE_BYTES = CHUNK_ROWS * 128;  // dequantized

    Tile& tile;
    const PackedMatrices& b;
    Workspace_ workspace;
    const int index;  // of this dequantizing warp in the CTA
    uint32_t parity = 0;

    static __device__ __forceinline__ int reread_lane() { return reread_thread_index() % 32; }

    __device__ __forceinline__ void run() {
        if (index == 0)
            open_queue(workspace.queue(), workspace.units(), reread_lane(), [&] { arrive(&tile.dequantizing.cleared); });
        wait(&tile.dequantizing.cleared, 0);
        auto take_ticket = [&] { return reread_lane() == 0 ? increment(workspace.queue().next_ticket()) : 0; };
        uint32_t next_ticket = take_ticket();
        int ticket = __shfl_sync(0xFFFFFFFF, next_ticket, 0);
        bool exists = find(ticket, parity);
        for (int height = 0; height < Tile::WEIGHT_PARTS; height++) load(exists, parity, height);
        while (exists) {
            next_ticket = take_ticket();  // the atomic's latency overlaps the work on the current unit
            while (ticket - Workspace_::UNITS_AHEAD >= tile.dequantizing.get_progress()) __nanosleep(200);
#pragma unroll 1
            for (int height = 0; height < Tile::WEIGHT_PARTS; height++) {
                wait(&tile.dequantizing.full[index][height], parity);
                dequantize(height);
                __syncwarp();  // all lanes have read the buffer, which load() overwrites
                if (height == 0) {
                    ticket = __shfl_sync(0xFFFFFFFF, next_ticket, 0);
                    exists = find(ticket, parity ^ 1);
                }
                load(exists, parity ^ 1, height);
            }
            order_copies();
            __syncwarp();
            if (reread_lane() == 0) store_release(workspace.queue().ready(unit(parity).index), 1);
            parity ^= 1;
        }
    }

   private:
    // Two units alternate: the one that is dequantized, and the next one.
    __device__ __forceinline__ DequantizedUnit& unit(uint32_t parity) const { return tile.dequantizing.units[index][parity]; }
    __device__ __forceinline__ bool find(int ticket, uint32_t parity) const {
        DequantizedUnit found;
        const bool exists = workspace.find(tile.dequantizing.positions[index], b, ticket, found);
        if (reread_lane() == 0 && exists) unit(parity) = found;
        __syncwarp();
        return exists;
    }
    __device__ __forceinline__ void load(bool exists, uint32_t parity, int height) const {
        if (reread_lane() > 0 || !exists) return;
        const DequantizedUnit next = unit(parity);
        const uint32_t bytes = height < next.heights ? max(min(next.chunks, Tile::CHUNKS), 0) * Tile::CHUNK_BYTES : 0;
        Barrier* full = &tile.dequantizing.full[index][height];
        arrive_expecting_bytes(full, bytes);
        if (bytes > 0)
            load_bytes(tile.dequantizing.packed[index][height],
                       b.first + (int64_t(next.first_chunk) + height * b.chunks) * Tile::CHUNK_BYTES, bytes, full);
    }

    // Dequantizes a piece, 16 weight rows at a time. stmatrix writes the fragments to shared memory as rows of 128 bytes with the 128-byte swizzle,
    // and lanes copy the rows to the workspace. Missing chunks become zeros.
    __device__ __forceinline__ void dequantize(int height) const {
        const DequantizedUnit of = unit(parity);
        const int chunks = height < of.heights ? of.chunks : 0;
        uint8_t* target = workspace.weights + (int64_t(of.index) * Tile::WEIGHT_PARTS + height) * PIECE_BYTES;
        const uint32_t table = shared_address(tile.magnitudes), packed = shared_address(tile.dequantizing.packed[index][height]);
        uint8_t* rows = tile.dequantizing.rows[index];
        const int lane = reread_lane();
#pragma unroll 1
        for (int round = 0; round < CHUNK_ROWS / 16; round++, target += 16 * 128) {
            const int thread = round * 32 + lane;
            PackedWords words[Tile::CHUNKS];
#pragma unroll
            for (int chunk = 0; chunk < Tile::CHUNKS; chunk++) {
                const uint32_t from = packed + chunk * Tile::CHUNK_BYTES;
                words[chunk] = load_packed(
                    from + thread * 16, from + CODE_BYTES + (Tile::FORMAT == WeightFormat::nvfp4 ? thread * 2 : thread / 2 * 2),
                    chunk < chunks);
            }
            __syncwarp();  // the previous rows have been read
#pragma unroll
            for (int chunk = 0; chunk < Tile::CHUNKS; chunk++) {
                uint32_t dequantized[8];
                unpack(words[chunk], look_up(words[chunk], table), dequantized);
#pragma unroll
                for (int s = 0; s < 2; s++)
                    store_matrices(rows + lane % 16 * 128 + (chunk * 4 + s * 2 + lane / 16 ^ lane % 8) * 16,
                                   {dequantized[4 * s], dequantized[4 * s + 1], dequantized[4 * s + 2], dequantized[4 * s + 3]});
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 4; i++)
                reinterpret_cast<uint4*>(target)[i * 32 + lane] = reinterpret_cast<const uint4*>(rows)[i * 32 + lane];
        }
    }
};

template <class Tile, class Workspace_>
__device__ __forceinline__ WorkspaceWriter<Tile, Workspace_> workspace_writer(Tile& tile, const PackedMatrices& b,
                                                                              Workspace_ workspace, int index) {
    return {tile, b, workspace, index};
}

// The producer warp: announces tiles, and copies dequantized weights, tokens and the factors of weight rows.
template <class Tile, class Operands, class Workspace_>
__device__ __forceinline__ void load_from_workspace(Tile& tile, const Operands& operands, Workspace_ workspace,
                                                    const FourBitResult<Tile::FORMAT>& d, int lane) {
    wait(&tile.dequantizing.cleared, 0);  // the marks are undefined before
    Ring<Tile::STAGES> ring;
    int entry = 0, index = blockIdx.x;
    for (TileAndUnits found; workspace.find(tile.dequantizing.producer, index, found); index += gridDim.x) {
        const AnnouncedTile& work = found.tile;
        const int first = (work.group * workspace.columns + work.weight / Tile::WEIGHTS) * workspace.stages;
        uint32_t ready = 0;  // a bit for each of 32 units along K
#pragma unroll 1
        for (int stage = 0; stage < workspace.stages; stage++) {
            if (stage % 32 == 0) ready = 0;
            if (lane == 0) tile.dequantizing.set_progress(found.units_before + stage * found.units_a_stage);
            while (!(ready >> stage % 32 & 1)) {
                const int own = stage / 32 * 32 + lane;
                ready =
                    __ballot_sync(0xFFFFFFFF, own < workspace.stages && load_acquire(workspace.queue().ready(first + own)) == 1);
                order_copies();
                __syncwarp();  // lane 0 copies a unit whose mark another lane has acquired
            }
            tile.wait_until_empty(ring);
            if (stage == 0) {
                auto of_group = d;
                asm volatile("" : "+r"(of_group.columns));  // prevents the compiler from keeping strides of groups in registers
                of_group = of_group.of(work.group);
#pragma unroll 1
                for (int i = lane; i < Tile::WEIGHTS; i += 32) {
                    const int at = min(work.weight + i, d.columns - 1);
                    tile.columns[entry][i] = make_float2(of_group.factor(at), d.bias != nullptr ? of_group.bias_of(at) : 0.0f);
                }
                __syncwarp();
            }
            if (lane == 0) {
                if (stage == 0) tile.announced[entry] = work;
                arrive_expecting_bytes(&tile.full[ring.stage], operands.box_rows * 128 + Workspace_::UNIT_BYTES);
                load_bytes(tile.weights[ring.stage], workspace.weights + int64_t(first + stage) * Workspace_::UNIT_BYTES,
                           Workspace_::UNIT_BYTES, &tile.full[ring.stage]);
                operands.load_tokens(tile, ring.stage, {work.token, work.weight, work.end_token, work.group},
                                     stage * Tile::CHUNKS);
            }
            __syncwarp();
            ring.advance();
        }
        entry = entry + 1 == Tile::COLUMNS ? 0 : entry + 1;
    }
    if (lane == 0) tile.dequantizing.set_progress(INT_MAX);
}

}  // namespace zoo
