"""What the PTX manual requires, by kind of finding: the section of the manual, and what to add to or change in the kernel."""

RULES = {
    "deadlock": ("barrier; mbarrier.test_wait, mbarrier.try_wait", "let every counted thread arrive, and every wait name a phase that ends"),
    "livelock": ("mbarrier.test_wait, mbarrier.try_wait", "check what the loop waits for"),
    "out-of-bounds": ("Addresses as Operands", "guard the access, or pass a larger array"),
    "misaligned": ("Addresses as Operands", "align the address to the size of the access"),
    "uninitialised-register": ("Register State Space", "write the register on every path to this instruction"),
    "uninitialised-shared": ("Shared State Space", "write the bytes before, or order their writer before this access"),
    "uninitialised-global": ("Global State Space", "write the bytes before, or give the argument contents"),
    "uninitialised-local": ("Local State Space", "write the bytes before"),
    "uninitialised-tensor-memory": ("Tensor Memory", "write the cells before: enable-input-d of the first product is false"),
    "missing-proxy-fence": ("Async proxy; membar, fence", "fence.proxy.async after the writes, before the barrier that the reader waits for"),
    "missing-tcgen05-fence": (
        "tcgen05.fence",
        "tcgen05.fence::before_thread_sync before the barrier, tcgen05.fence::after_thread_sync behind it",
    ),
    "missing-dependency-wait": ("griddepcontrol", "griddepcontrol.wait before the first use of global memory"),
    "missing-wait": ("wgmma.wait_group; tcgen05.wait", "the wait of the operation, before its result is used"),
    "missing-wgmma-fence": ("wgmma.fence", "wgmma.fence.sync.aligned before the first wgmma.mma_async that uses the registers"),
    "source-overwritten": ("Completion Mechanisms for Asynchronous Copy Operations", "wait for the operation before its source changes"),
    "pending-destination": ("Completion Mechanisms for Asynchronous Copy Operations", "wait for the operation before its destination is used"),
    "scope": ("Scope; Release and Acquire Patterns", "scope .cluster within a cluster, .gpu between clusters"),
    "race": ("Memory Consistency Model", "a barrier between the two accesses; in a loop one between its rounds, too"),
    "barrier-misuse": ("barrier; barrier.cluster", "give every participant the same barrier and thread count"),
    "mbarrier-misuse": ("mbarrier", "initialise with the number of arrivals of a phase, and order the init before its use"),
    "mbarrier-phase": ("Phase of the mbarrier object", "wait for the phase before the next arrival of this thread"),
    "mbarrier-exit": ("Phase Completion of the mbarrier object", "arrive as often as was announced"),
    "tensor-memory-misuse": ("Tensor Memory Allocation and Management Instructions", "allocate, address and free as one warp and one CTA group"),
    "tensor-memory-leak": ("Tensor Memory Allocation and Management Instructions", "tcgen05.dealloc before the CTA exits"),
    "divergent-aligned": ("Directives and modifiers: .aligned", "let all lanes of the warp reach the instruction together"),
    "divergent-operand": ("Operands", "give the operand one value in all lanes, or elect one lane"),
    "divergent-warpgroup": ("Warpgroup", "let four consecutive warps execute the instruction"),
    "convergence": ("Member mask of .sync instructions", "name in the mask exactly the lanes that execute the instruction"),
    "invalid-descriptor": (
        "Matrix Descriptor; Instruction descriptor; tex, suld",
        "build the descriptor as the section's table says, or pass a handle of the instruction's geometry and type",
    ),
    "tensor-map": ("Tensors; cp.async.bulk.tensor", "encode a map that fits this copy"),
    "bulk-copy": ("cp.async.bulk", "use multiples of 16 bytes, and the mbarrier and CTA that the form allows"),
    "pending-at-exit": ("cp.async.bulk.wait_group", "wait for the operation before the CTA exits"),
    "exited-cta": ("Cluster of Cooperative Thread Arrays", "a cluster barrier before the access, and one before the owner exits"),
    "cluster-launch-control": ("clusterlaunchcontrol.try_cancel", "use an answer where it says that it took a cluster"),
    "register-count": ("setmaxnreg", "let all warps of a warpgroup execute it, within the budget of the CTA"),
    "invalid-call": ("call; .callprototype; .calltargets", "call the address of a function with this prototype"),
    "invalid-free": ("CUDA programming guide: Dynamic Global Memory Allocation", "free each block once"),
    "stack-overflow": ("alloca; call", "nest fewer calls, or set a larger stack: cudaDeviceSetLimit(cudaLimitStackSize, bytes)"),
    "trap": ("trap", "see the assertion in the source"),
    "arithmetic": ("Integer Arithmetic Instructions", "keep the operand inside the range that the instruction defines"),
}  # fmt: skip
# What to add where a race is of these kinds.
OF_CTAS = "an atomic, memory for each CTA alone, or a second launch: no barrier orders CTAs"
OF_COPIES = "cp.async.wait_group for this copy, before the barrier that the reader waits for"
OF_BULK_COPIES = "a wait for the mbarrier of the copy before its bytes are used, and for their readers' before the next copy"
