// Programmatic dependent launch: a kernel may become resident before the previous kernel of the stream has ended.
//
// Both calls do nothing in a launch without this attribute.
#pragma once

namespace zoo {

// Waits until every earlier kernel has ended and its writes are visible. Each thread calls it before its first access to global memory
// *and* before it exits: a kernel that ends without waiting lets the next kernel overtake the previous kernel.
__device__ __forceinline__ void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next kernel use multiprocessors that this kernel leaves free. The next kernel still waits for the end of this kernel.
__device__ __forceinline__ void let_next_kernel_launch() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace zoo
