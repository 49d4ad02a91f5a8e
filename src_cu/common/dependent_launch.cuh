// Programmatic dependent launch: a kernel launched with that attribute may be resident before the one ahead of it in
// the stream has ended. Without the attribute both calls do nothing.
#pragma once

namespace zoo {

// Blocks until every kernel ahead has ended and its writes are visible. Each thread calls it before its first access to
// global memory *and* before it exits: a kernel that ended without waiting would let its successor overtake.
__device__ __forceinline__ void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The next kernel may take its place on the multiprocessors as ours frees them; it still waits for our end.
__device__ __forceinline__ void let_next_kernel_launch() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace zoo
