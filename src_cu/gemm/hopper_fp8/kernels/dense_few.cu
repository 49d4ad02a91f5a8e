// gemm.fp8b128.dense for few tokens, which are the columns of wgmma. A cluster computes a tile, and its CTAs split K; or persistent CTAs compute
// several tiles. Neighbouring tiles may share the loads of their tokens. Its files:
//
//     schedule/tile_schedule.cuh              Which tile does a CTA compute next?
//     hopper_fp8/tile.cuh                     What is in a stage, and which warps arrive at its barriers?
//     hopper_fp8/operands.cuh                 Where do elements and scales come from?
//     hopper_fp8/producer.cuh                 How do producer warps fill the stages?
//     hopper_fp8/mainloop.cuh                 How do math warps multiply and promote K blocks?
//     hopper_fp8/multicast_tokens.cuh         How do neighbouring tiles share the loads of tokens?
//     hopper_fp8/store_rows.cuh               What are the types of D, and how are row_scale and C applied?
//     hopper_fp8/store_reduced.cuh            How are the sums of a cluster added through shared memory?
//     epilogue/pushed_sums.cuh                Or how do CTAs push their sums to each other?
//     hopper_fp8/pipeline/few_tokens.cuh      Which warps do what, and when? The table may choose FewTokensPushed below instead.
//     hopper_fp8/kernels/dense.cuh            What are the kernel's arguments?

#include <type_traits>

#include "gemm/epilogue/pushed_sums.cuh"
#include "gemm/hopper_fp8/multicast_tokens.cuh"
#include "gemm/hopper_fp8/pipeline/few_tokens.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

// As FewTokens, but CTAs push sums to the CTA that stores them. That is faster where shared memory has room beside the stages.
template <class Tile>
struct FewTokensPushed {
    static constexpr bool ONE_TILE_PER_CLUSTER = true;
    static constexpr bool SHARES = Tile::SHARERS > 1;

    Tile tile;
    PushedSums<Tile, Tile::CTAS_PER_RESULT> pushed;

    template <TileSchedule Schedule, OperandsOf<Tile> Operands, StoresEightColumns Target>
    __device__ __forceinline__ void run(Schedule schedule, const Operands& operands, const Target& d, EarlyLoads early = {}) {
        const Work work = schedule.work;

        begin_tile(tile, schedule, operands, early, [&] { pushed.initialise(); });
        arrive_at_cluster();  // CTAs receive tokens and sums after all have arrived
        wait_for_previous_kernel();

        if (threadIdx.x >= Tile::MATH_THREADS) {
            if constexpr (Tile::REALLOCATES_REGISTERS) lower_registers_to<Tile::LOADER_REGISTERS>();
            if constexpr (SHARES) wait_for_cluster();
            load(tile, schedule, operands, early.weights ? Tile::WEIGHTS_AHEAD : 0);
            __syncwarp();
            if constexpr (!SHARES) wait_for_cluster();
        } else {
            if constexpr (Tile::REALLOCATES_REGISTERS) raise_registers_to<Tile::MATH_REGISTERS>();
            wait_for_cluster();
            Ring<Tile::STAGES> ring;
            float sums[Tile::PASSES][Tile::SUMS];
            multiply(tile, ring, work.end_block - work.first_block, sums);
            pushed.push(sums[0]);
        }
        pushed.template reduce_and_store<Tile::THREADS / 32>(d, work);
        if constexpr (SHARES) tile.wait_until_all_released(work.end_block - work.first_block);
    }
};

using BaseTile =
    Fp8Tile<Variant::TOKENS, Variant::WEIGHTS, Variant::STAGES, Variant::WARPGROUPS, Variant::SWAPPED, Variant::OVERLAPPED>;
using Tile = OptionalMulticastTile<TileOfCluster<BaseTile, Variant::SPLITS>, sharers<Variant>()>;
using Rows = RowTiles<Tile, Tile::TOKENS>;
using DenseOperands = OptionalMulticastOperands<Tile, Rows>;
using Pipeline = ZOO_PIPELINE<Tile>;
using ClusterSchedule = OptionalMulticastSchedule<Tile, Variant::SPLITS, Rows>;
using Schedule = std::conditional_t<OneTilePerCluster<Pipeline>, ClusterSchedule, DenseSchedule<Tile, Variant::BAND, Rows>>;

}  // namespace zoo

#include "gemm/hopper_fp8/kernels/dense.cuh"
