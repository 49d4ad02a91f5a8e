// Who computes which tile of a product with packed weights: one matrix, groups one after the other, or each in its place, as the launch says, so
// that one cubin serves all three.
#pragma once

#include "gemm/schedule/ends_or_places.cuh"
#include "gemm/schedule/many_groups.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

// One matrix, where there are no places, is a group that has been found: nobody walks along groups for it, and nothing is read. Its tiles of 96
// rows and more are as high as a box, which the launch makes such that they are about as high as each other, as EvenTiles; there are as many as
// of whole tiles.
template <class Tile, int BAND>
struct OneOrGroupedOrder : OrderOfFewOrManyGroups<Tile, Tile::TOKENS, BAND, EndsOrPlaces> {
    using Grouped = OrderOfFewOrManyGroups<Tile, Tile::TOKENS, BAND, EndsOrPlaces>;
    static constexpr bool EVEN = Tile::TOKENS >= 96;

    int box_rows;

    __device__ __forceinline__ OneOrGroupedOrder(EndsOrPlaces places, int count, int box_rows, int N, int blocks)
        : Grouped(places, count, N, blocks), box_rows(box_rows) {
        if (places.places != nullptr) return;
        if constexpr (requires { this->find_one(places.rows); }) {
            this->find_one(places.rows);
        } else {
            this->first_group = 0;
            this->end = places.rows;
            this->own_end_index = this->end_index = tiles_of(places.rows, Tile::TOKENS) * this->columns;
        }
    }

    __device__ __forceinline__ bool next(Work& work) {
        if (!Grouped::next(work)) return false;
        if constexpr (EVEN) {  // no branch: ptxas would not know that lanes go on together
            const bool is_one = this->groups.places == nullptr;
            work.token = is_one ? work.token / Tile::TOKENS * box_rows : work.token;
            work.end_token = min(work.end_token, is_one ? work.token + box_rows : work.end_token);
        }
        return true;
    }
};

}  // namespace zoo
