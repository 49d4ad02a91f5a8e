"""Deliberate bugs, as data: which proof kernel, what is edited in its PTX, of which kind the bug is and what is wrong.

Every one of them is a mistake that somebody could make while writing such a kernel, and that hardware may well let pass. None is
equivalent to the kernel it is made from: each either breaks a rule of hardware or makes a result wrong under some legal schedule.
"""

from dataclasses import dataclass

from mutant_edits import (
    after,
    barrier_inits,
    before,
    change,
    declare,
    delete,
    duplicate,
    every,
    first,
    inits_counting,
    last,
    move,
    nth,
    only_lane_zero,
    only_thread_zero,
    skip_wait,
    substitute,
)


@dataclass(frozen=True)
class Mutant:
    case: str  # name of the proof case
    kind: str
    wrong: str  # what is wrong, in a few words: also the mutant's name
    edits: tuple

    @property
    def name(self):
        return f"{self.case}: {self.wrong}"


# instructions, as regular expressions
TRY_WAIT = r"mbarrier\.try_wait"
EXPECT = r"mbarrier\.arrive\.expect_tx"
ARRIVE = r"mbarrier\.arrive\.(shared|release)"
LOAD = r"cp\.async\.bulk\.tensor\.2d\.(cta_group::2\.)?shared"
STORE = r"cp\.async\.bulk\.tensor\.2d\.global"
BULK_LOAD = r"cp\.async\.bulk\.shared"
BULK_STORE = r"cp\.async\.bulk\.global"
PROXY_FENCE = r"fence\.proxy\.async"
INIT_FENCE = r"fence\.mbarrier_init"
CTA_BARRIER = r"bar(rier)?\.sync"
CLUSTER_ARRIVE, CLUSTER_WAIT = r"barrier\.cluster\.arrive", r"barrier\.cluster\.wait"
WGMMA, WGMMA_WAIT = r"wgmma\.mma_async", r"wgmma\.wait_group"
MMA, COPY, COMMIT = r"tcgen05\.mma", r"tcgen05\.cp", r"tcgen05\.commit"
TENSOR_LD, TENSOR_WAIT_LD, DEALLOC = r"tcgen05\.ld", r"tcgen05\.wait::ld", r"tcgen05\.dealloc"
FENCE_AFTER = r"tcgen05\.fence::after"
ACCUMULATE = r"setp\.ne\.b32 (accumulate|adds)"  # the predicate of an mma: keep what is in D?
ELECTED = r"selp\.u32 %r\d+, 1, 0, one"
LAST_STAGE = r"setp\.(eq|ne)\.[sb]32\s+%p\d+, %r\d+, 2"  # of three: where a ring begins again

EXPECTED_BYTES = 2  # operand of EXPECT
PARITY = 2  # operand of TRY_WAIT

FP8, BF16, REGISTER_A, MN_MAJOR = "wgmma_fp8_gemm", "wgmma_bf16_gemm", "wgmma_register_a", "wgmma_mn_major"
CLUSTER = "cluster_multicast"
MXF8, MXF8_E2M1, MXF4, NVF4 = "tcgen05-mxf8f6f4", "tcgen05-mxf8f6f4_e2m1", "tcgen05-mxf4", "tcgen05-mxf4nvf4"
PAIR_MXF8, PAIR_MXF4, PAIR_NVF4 = "tcgen05_pair-mxf8f6f4", "tcgen05_pair-mxf4", "tcgen05_pair-mxf4nvf4"
PERSISTENT = "tcgen05_persistent"

MUTANTS = [
    Mutant(case, kind, wrong, edits if isinstance(edits, tuple) else (edits,))
    for kind, group in {
        "wrong byte count": [
            (FP8, "expects 16 bytes too many", change(first(EXPECT), EXPECTED_BYTES, add=16)),
            (FP8, "expects 128 bytes too few", change(first(EXPECT), EXPECTED_BYTES, add=-128)),
            (BF16, "expects only half of B", change(first(EXPECT), EXPECTED_BYTES, add=-4096)),
            (CLUSTER, "forgets the peer's part of B", change(first(EXPECT), EXPECTED_BYTES, add=-4096)),
            (MXF8, "forgets the scales of B", change(first(EXPECT), EXPECTED_BYTES, add=-512)),
            (MXF8_E2M1, "counts unpacked bytes of B", change(first(EXPECT), EXPECTED_BYTES, add=8192)),
            (PAIR_MXF4, "expects one CTA's bytes", change(first(EXPECT), EXPECTED_BYTES, add=-26624)),
            ("clc_persistent-single", "expects 32 bytes of answer", change(first(EXPECT), EXPECTED_BYTES, add=16)),
            ("tma_gather4", "expects one row of four", change(first(EXPECT), EXPECTED_BYTES, add=-384)),
            ("tma_packed_fp4-align16", "expects the footprint", change(first(EXPECT), EXPECTED_BYTES, add=1024)),
            ("bulk_copy", "copies 16 bytes too few", change(every(BULK_LOAD), 2, add=-16)),
        ],
        "wrong arrival count": [
            (FP8, "empty counts 3 of 4 warps", change(barrier_inits("empty"), 1, add=-1)),
            (FP8, "empty counts 5 warps", change(barrier_inits("empty"), 1, add=1)),
            (BF16, "full counts a second arrival", change(barrier_inits("full"), 1, add=1)),
            (BF16, "empty counts one of two warpgroups", change(barrier_inits("empty"), 1, add=-1)),
            (CLUSTER, "empty counts one CTA's consumers", change(barrier_inits("empty"), 1, add=-4)),
            ("cp_async-mbarrier", "full counts 63 of 64 threads", change(barrier_inits("full"), 1, add=-1)),
            ("cp_async-mbarrier", "empty counts half the threads", change(barrier_inits("empty"), 1, add=-32)),
            (MXF8, "empty counts two commits", change(barrier_inits("empty"), 1, add=1)),
            (PERSISTENT, "drained counts 3 of 4 epilogue warps", change(inits_counting(4), 1, add=-1)),
            (PERSISTENT, "answer free when 6 of 7 have read it", change(inits_counting(7), 1, add=-1)),
            (PERSISTENT, "answer waits for an eighth reader", change(inits_counting(7), 1, add=1)),
            (PAIR_MXF8, "accumulator barrier counts two", change(barrier_inits("accumulator_full"), 1, add=1)),
        ],
        "flipped phase": [
            (FP8, "producer waits for the wrong parity", change(before(TRY_WAIT, EXPECT), PARITY, xor=1)),
            (FP8, "consumer waits for the wrong parity", change(before(TRY_WAIT, WGMMA), PARITY, xor=1)),
            (MXF8, "multiplier waits for the wrong parity", change(before(TRY_WAIT, COPY), PARITY, xor=1)),
            (MXF4, "epilogue waits for the wrong parity", change(before(TRY_WAIT, TENSOR_LD), PARITY, xor=1)),
            (PAIR_NVF4, "multiplier waits for the wrong parity", change(before(TRY_WAIT, COPY), PARITY, xor=1)),
            (PERSISTENT, "epilogue waits for the wrong parity", change(before(TRY_WAIT, TENSOR_LD), PARITY, xor=1)),
            (PERSISTENT, "multiplier waits for drained of the wrong parity", change(before(TRY_WAIT, COPY, back=2), PARITY, xor=1)),
            ("bulk_copy", "waits for the wrong parity", change(first(TRY_WAIT), PARITY, xor=1)),
            ("clc_persistent-single", "waits for the wrong parity", change(first(TRY_WAIT), PARITY, xor=1)),
        ],
        "missing wait": [
            (FP8, "multiplies before the tile is there", skip_wait(before(TRY_WAIT, WGMMA))),
            (FP8, "refills a stage without asking", skip_wait(before(TRY_WAIT, EXPECT))),
            (REGISTER_A, "ldmatrix before the tile is there", skip_wait(before(TRY_WAIT, r"ldmatrix"))),
            (MXF8, "multiplies before the tile is there", skip_wait(before(TRY_WAIT, COPY))),
            (MXF8, "reads D before it is complete", skip_wait(before(TRY_WAIT, TENSOR_LD))),
            (PAIR_MXF8, "refills a stage without asking", skip_wait(before(TRY_WAIT, EXPECT))),
            (PERSISTENT, "accumulator reused before it is drained", skip_wait(before(TRY_WAIT, COPY, back=2))),
            (PERSISTENT, "epilogue reads before the accumulator is ready", skip_wait(before(TRY_WAIT, TENSOR_LD))),
            (PERSISTENT, "asks again before all have read the answer", skip_wait(before(TRY_WAIT, r"clusterlaunchcontrol\.try"))),
            (FP8, "asks once and goes on whatever the answer", delete(after(r"bra", TRY_WAIT, 0))),
            ("tma_swizzle-128B", "asks once and goes on whatever the answer", delete(after(r"bra", TRY_WAIT, 0))),
            ("tma_swizzle-128B", "reads the tile before it is there", skip_wait(first(TRY_WAIT))),
            ("bulk_copy", "works on a chunk before it is there", skip_wait(first(TRY_WAIT))),
            ("tma_gather4", "stores rows before they are there", skip_wait(first(TRY_WAIT))),
            ("clc_persistent-cluster", "reads the answer before it is there", skip_wait(first(TRY_WAIT))),
        ],
        "missing proxy fence": [
            ("bulk_copy", "no fence before the bulk store", delete(first(PROXY_FENCE))),
            ("stmatrix_tma_store", "no fence before the TMA store", delete(first(PROXY_FENCE))),
            ("stmatrix_tma_store", "fence before the writes instead of after", move(first(PROXY_FENCE), first(r"stmatrix"))),
            ("bulk_copy", "fence of global instead of shared memory", substitute(first(PROXY_FENCE), r"\.shared::cta", ".global")),
            ("bulk_copy", "one thread fences for all", only_thread_zero(first(PROXY_FENCE))),
        ],
        "mbarrier initialisation not published": [
            ("bulk_copy", "copies signal barriers whose inits nothing fences", delete(every(INIT_FENCE))),
            ("tma_swizzle-128B", "a copy signals a barrier whose init nothing fences", delete(first(INIT_FENCE))),
            ("tma_gather4", "a gather signals a barrier whose init nothing fences", delete(first(INIT_FENCE))),
            (FP8, "copies signal barriers whose inits nothing fences", delete(every(INIT_FENCE))),
            (REGISTER_A, "copies signal barriers whose inits nothing fences", delete(every(INIT_FENCE))),
            # With .release on the cluster barrier the fence could be left out; with .relaxed it could not.
            (CLUSTER, "no fence and a relaxed arrival", (delete(every(INIT_FENCE)), substitute(first(CLUSTER_ARRIVE), "release", "relaxed"))),
            (PAIR_MXF8, "no fence and a relaxed arrival", (delete(every(INIT_FENCE)), substitute(every(CLUSTER_ARRIVE), "release", "relaxed"))),
        ],
        "wrong memory order": [
            (CLUSTER, "remote arrival relaxed", substitute(first(r"mbarrier\.arrive\.release"), r"\.release", ".relaxed")),
            (CLUSTER, "no fence after the producer's wait", delete(first(r"fence\.acquire\.sync_restrict"))),
            ("clc_persistent-single", "wait for the answer relaxed", substitute(first(TRY_WAIT), r"\.parity", ".parity.relaxed.cluster")),
            (PERSISTENT, "lane 0 reports before its warp has read", delete(before(r"bar\.warp\.sync", ARRIVE, -1))),
        ],
        "missing CTA barrier": [
            ("bulk_copy", "stores before all threads have written", delete(before(CTA_BARRIER, BULK_STORE))),
            ("bulk_copy", "barrier counts one warp of two", substitute(before(CTA_BARRIER, BULK_STORE), r"\b0;", "0, 32;")),
            ("stmatrix_tma_store", "stores before all warps have written", delete(before(CTA_BARRIER, STORE))),
            ("cp_async-groups", "sums before everybody's pieces are there", delete(before(CTA_BARRIER, r"ld\.shared"))),
            (FP8, "barriers used before they are initialised", delete(first(CTA_BARRIER))),
            (MXF8, "address read before it is written", delete(before(CTA_BARRIER, r"ld\.shared"))),
            (MXF8, "deallocates before all warps have read", delete(before(CTA_BARRIER, DEALLOC))),
            ("clc_persistent-single", "asks again while others read the answer", delete(last(CTA_BARRIER))),
        ],
        "missing cluster barrier": [
            (CLUSTER, "peer addressed before it is ready", (delete(first(CLUSTER_ARRIVE)), delete(first(CLUSTER_WAIT)))),
            (CLUSTER, "exits while the peer still signals it", (delete(last(CLUSTER_ARRIVE)), delete(last(CLUSTER_WAIT)))),
            (PAIR_MXF8, "exits while the peer still works", (delete(last(CLUSTER_ARRIVE)), delete(last(CLUSTER_WAIT)))),
            (PAIR_MXF4, "pair starts before the peer is ready", (delete(first(CLUSTER_ARRIVE)), delete(first(CLUSTER_WAIT)))),
            (CLUSTER, "arrives at the cluster barrier without waiting", delete(first(CLUSTER_WAIT))),
        ],
        "missing tcgen05 wait or fence": [
            (MXF8, "frees tensor memory without wait::ld", delete(every(TENSOR_WAIT_LD))),
            (MXF8, "no fence between the barrier and ld", delete(before(FENCE_AFTER, TENSOR_LD))),
            (PERSISTENT, "accumulator given back without wait::ld", delete(every(TENSOR_WAIT_LD))),
            (PERSISTENT, "no fence between drained and the next mma", delete(before(FENCE_AFTER, COPY))),
        ],
        "missing wgmma wait or fence": [
            (REGISTER_A, "fence before A's registers are loaded", move(first(r"wgmma\.fence"), first(r"ldmatrix"))),
            (FP8, "stage released and D read without waiting", delete(every(WGMMA_WAIT))),
            (FP8, "waits for the group before the last", change(first(WGMMA_WAIT), 0, add=1)),
            (BF16, "waits for two groups back", change(first(WGMMA_WAIT), 0, add=1)),
            (BF16, "no wait before the epilogue", delete(last(WGMMA_WAIT))),
            (FP8, "no fence before the first mma", delete(first(r"wgmma\.fence"))),
            (FP8, "waits before it commits", move(first(WGMMA_WAIT), first(r"wgmma\.commit_group"))),
            (MN_MAJOR, "mma never committed", delete(first(r"wgmma\.commit_group"))),
            (REGISTER_A, "no fence after writing A's registers", delete(first(r"wgmma\.fence"))),
        ],
        "missing commit": [
            (MXF8, "stage never released", delete(first(COMMIT))),
            (MXF8, "accumulator never announced", delete(last(COMMIT))),
            (PAIR_MXF8, "stage never released", delete(first(COMMIT))),
            (PERSISTENT, "accumulator never announced", delete(last(COMMIT))),
            ("bulk_copy", "stores never committed", delete(first(r"cp\.async\.bulk\.commit_group"))),
            ("tma_swizzle-64B", "store never committed", delete(first(r"cp\.async\.bulk\.commit_group"))),
            ("cp_async-groups", "copies never committed", delete(last(r"cp\.async\.commit_group"))),
        ],
        "missing arrival": [
            (FP8, "consumers never release a stage", delete(every(ARRIVE))),
            ("cp_async-mbarrier", "readers never release a stage", delete(every(ARRIVE))),
            (PERSISTENT, "epilogue never gives the accumulator back", delete(after(ARRIVE, TENSOR_LD))),
        ],
        "missing wait for a store": [
            ("bulk_copy", "waits for the store before the last", change(first(r"cp\.async\.bulk\.wait_group\.read"), 0, add=1)),
            ("bulk_copy", "buffer refilled while the store reads it", delete(first(r"cp\.async\.bulk\.wait_group\.read"))),
            ("stmatrix_tma_store", "exits while the store reads its tile", delete(first(r"cp\.async\.bulk\.wait_group"))),
            ("tma_reduce", "exits while the reduction reads its tile", delete(first(r"cp\.async\.bulk\.wait_group"))),
        ],
        "stage released too early": [
            (FP8, "before its mma is complete", move(first(WGMMA_WAIT), after(r"\w", ARRIVE))),
            (REGISTER_A, "before its mma is complete", move(first(WGMMA_WAIT), after(r"\w", ARRIVE))),
            (CLUSTER, "before its mma is complete", move(first(WGMMA_WAIT), after(r"\w", ARRIVE))),
            (MXF8, "by a plain arrive, not by a commit", substitute(first(COMMIT), r"tcgen05\.commit\S+ \[", "mbarrier.arrive.shared::cta.b64 _, [")),
        ],
        "wrong ring": [
            (FP8, "producer loads one tile too many", substitute(after(r"setp\.lt\.s32", LOAD), r"setp\.lt", "setp.le")),
            (FP8, "four stages where there are three", substitute(every(LAST_STAGE), ", 2;", ", 3;")),
            (FP8, "producer with two stages of three", substitute(after(LAST_STAGE, LOAD), ", 2;", ", 1;")),
            ("cp_async-groups", "copies into the next stage", change(last(r"cp\.async\.cg"), (0, 0), add=1024)),
        ],
        "wrong tensor memory": [
            (MXF8, "128 columns where 152 are used", (substitute(first(r"tcgen05\.alloc"), "256", "128"), substitute(first(DEALLOC), "256", "128"))),
            (PAIR_NVF4, "128 columns where 224 are used", (substitute(first(r"tcgen05\.alloc"), "256", "128"), substitute(first(DEALLOC), "256", "128"))),
            (MXF8, "never deallocated", delete(first(DEALLOC))),
            (MXF8, "deallocates half of it", substitute(first(DEALLOC), "256", "128")),
            (MXF4, "deallocated twice", duplicate(first(DEALLOC))),
            (MXF8, "allocates after giving up the permit", move(first(r"tcgen05\.relinquish"), first(r"tcgen05\.alloc"))),
            (PERSISTENT, "accumulators exchanged between the roles", change(every(MMA), (0, 0), xor=128)),
            (MXF8, "scales land on the accumulator", (change(every(COPY), (0, 0), add=-8), change(every(MMA), (4, 0), add=-8), change(every(MMA), (5, 0), add=-8))),
            (MXF8, "names the lanes of another warp", change(every(TENSOR_LD), (1, 0), xor=32 << 16)),
            (MXF8, "reads 16 columns further", change(every(TENSOR_LD), (1, 0), add=16)),
            (MXF8, "allocates 96 columns", (substitute(first(r"tcgen05\.alloc"), "256", "96"), substitute(first(DEALLOC), "256", "96"))),
        ],
        "wrong shared-memory descriptor": [
            (FP8, "64-byte swizzle for A", change(every(WGMMA), 1, xor=3 << 62, type="b64")),
            (FP8, "stride of 512 bytes for B", change(every(WGMMA), 2, xor=96 << 32, type="b64")),
            (FP8, "second step reads the first again", change(nth(WGMMA, 1), 1, add=-2, type="b64")),
            (MN_MAJOR, "stride of 2048 bytes for B", change(every(WGMMA), 2, xor=192 << 32, type="b64")),
            (MXF8, "version bit missing", change(every(MMA), 1, xor=1 << 46, type="b64")),
            (MXF8, "64-byte swizzle for B", change(every(MMA), 2, xor=6 << 61, type="b64")),
            (MXF8, "reserved layout", change(every(MMA), 1, xor=1 << 61, type="b64")),
            (NVF4, "scale rows 256 bytes apart", change(every(COPY), 1, xor=24 << 32, type="b64")),
            (PAIR_MXF4, "third step reads the second again", change(nth(MMA, 2), 1, add=-2, type="b64")),
        ],
        "wrong instruction descriptor": [
            (MXF8, "second step with the first step's scales", change(nth(MMA, 1), 3, xor=1 << 4 | 1 << 29)),
            (MXF4, "scale id 1, which 2X does not have", change(nth(MMA, 1), 3, xor=3 << 4 | 3 << 29)),
            (MXF8, "N of 64 for 128", change(every(MMA), 3, xor=24 << 17)),
            (MXF8, "M of 256 for one CTA", change(every(MMA), 3, xor=24 << 24)),
            (NVF4, "scales taken for ue8m0", change(every(MMA), 3, xor=1 << 23)),
            (MXF8, "A taken for e5m2", change(every(MMA), 3, xor=1 << 7)),
            (PAIR_MXF8, "M of 128 for the pair", change(every(MMA), 3, xor=24 << 24)),
        ],
        "wrong scale address": [
            (MXF8, "B's scales are A's", change(every(MMA), (5, 0), add=-4)),
            (NVF4, "last scale block copied after its mma", move(last(COPY), after(r"\w", MMA))),
            (NVF4, "last scale block never copied", delete(last(COPY))),
            (PAIR_NVF4, "first scale block never copied", delete(first(COPY))),
        ],
        "wrong coordinate": [
            (FP8, "A one column too far", change(first(LOAD), (1, 1, 0), add=1)),
            (FP8, "B's tile by the row index", substitute(before(r"mov\.u32\s+%r\d+, %ctaid\.x", EXPECT), "ctaid.x", "ctaid.y")),
            (FP8, "B lands on the last rows of A", change(nth(LOAD, 1), (0, 0), add=-1024)),
            (FP8, "B eight rows too far", change(nth(LOAD, 1), (1, 1, 1), add=8)),
            ("stmatrix_tma_store", "stores one tile to the left", change(first(STORE), (0, 1, 0), add=-64)),
            ("tma_packed_fp4-align16", "starts inside a packed group", change(first(LOAD), (1, 1, 0), add=64)),
            ("tma_gather4", "third row taken from the fourth", substitute(first(LOAD), r"(%r\d+), (%r\d+)\}", r"\2, \2}")),
        ],
        "misaligned address": [
            (FP8, "tiles not aligned to 1024 bytes", substitute(every(r"and\.b32\s+%r\d+, %r\d+, (1023|1008);"), r", (1023|1008);", ", 0;")),
            (FP8, "tile starts in the middle of a line", change(first(LOAD), (0, 0), add=64)),
            ("bulk_copy", "source off by 4 bytes", change(every(BULK_LOAD), (1, 0), add=4, type="b64")),
            (FP8, "result off by 4 bytes", change(first(r"st\.global"), (0, 0), add=4, type="b64")),
        ],
        "out of bounds": [
            ("bulk_copy", "shared buffer half as large as used", declare(r"(\dbuffer)\[2048\]", r"\1[1024]")),
            (MXF8, "reads columns past the allocation", change(every(TENSOR_LD), (1, 0), add=256)),
            (FP8, "stores without the row check", delete(before(r"bra", r"st\.global"))),
            (MXF8, "stores one element to the right", change(every(r"st\.global"), (0, 0), add=4, type="b64")),
            ("tma_swizzle-32B", "stores from past its tile", change(first(STORE), (1, 0), add=1 << 17)),
            ("cp_async-groups", "reads the row before the first", change(every(r"cp\.async\.cg"), (1, 0), add=-(1 << 20), type="b64")),
        ],
        "wrong accumulation": [
            (FP8, "first step adds to nothing", change(first(ACCUMULATE), 1, to=1)),
            (MXF8, "first step adds to nothing", change(first(ACCUMULATE), 1, to=1)),
            (MXF8, "second step forgets the first", change(nth(ACCUMULATE, 1), 1, to=0)),
        ],
        "wrong multicast or rank": [
            (CLUSTER, "B multicast to rank 0 only", change(first(r"cp\.async\.bulk\.tensor\S*multicast"), 3, xor=2, type="b16")),
            (CLUSTER, "tells only CTA 0 that a stage is free", change(first(r"mapa"), 2, to=0)),
            (PAIR_MXF8, "commit reaches the even CTA only", change(first(COMMIT), 1, xor=2, type="b16")),
            (PAIR_MXF8, "first load signals the odd CTA", change(first(r"mapa"), 2, add=1)),
            (CLUSTER, "waits on the peer's barrier", change(before(TRY_WAIT, WGMMA), (1, 0), xor=1 << 24)),
            (CLUSTER, "loads A into the peer's shared memory", change(first(LOAD), (0, 0), xor=1 << 24)),
            (PAIR_MXF8, "loads without cta_group::2", substitute(every(LOAD), r"\.cta_group::2", "")),
            ("clc_persistent-cluster", "answer to one CTA only", substitute(first(r"clusterlaunchcontrol\.try"), r"\.multicast::cluster::all", "")),
        ],
        "wrong matrix fragment": [
            ("stmatrix_tma_store", "rows 16 bytes off", change(every(r"stmatrix"), (0, 0), add=16)),
            ("stmatrix_tma_store", "transposed store without .trans", substitute(every(r"stmatrix\S*trans"), r"\.trans", "")),
            ("stmatrix_tma_store", "halves of a pair exchanged", substitute(first(r"cvt\.rn\.bf16x2"), r"(%f\d+), (%f\d+)", r"\2, \1")),
            (REGISTER_A, "registers of ldmatrix exchanged", substitute(first(r"ldmatrix"), r"\{(%r\d+), (%r\d+)", r"{\2, \1")),
            (MN_MAJOR, "A taken for K-major", change(every(WGMMA), 6, to=0)),
            (MN_MAJOR, "B taken for K-major", change(every(WGMMA), 7, to=0)),
        ],
        "wrong scale selector": [
            ("mma_sync-mxf8f6f4", "second step with the first step's scales", change(nth(r"mma\.sync", 1), (5, 0), to=0)),
            ("mma_sync-mxf8f6f4", "scales of A from the other half of the quad", change(first(r"mma\.sync"), (5, 1), to=1)),
            ("mma_sync-mxf4nvf4", "scales of B from the wrong lane of the quad", change(first(r"mma\.sync"), (7, 1), to=2)),
            ("mma_sync-mxf4", "rows of A exchanged", substitute(first(r"mma\.sync"), r"(\}, \{)(%r\d+), (%r\d+)", r"\1\3, \2")),
            ("mma_sync-mxf4", "byte 1, which 2X does not have", change(nth(r"mma\.sync", 1), (5, 0), to=1)),
        ],
        "issued by the wrong lanes": [
            (FP8, "every lane of a consumer warp arrives", delete(before(r"bra", ARRIVE))),
            (FP8, "every lane of the producer loads", substitute(before(ELECTED, EXPECT), "1, 0,", "1, 1,")),
            (MXF8, "every lane of the multiplier issues", substitute(before(ELECTED, COPY), "1, 0,", "1, 1,")),
            (MXF8, "one lane deallocates", only_lane_zero(first(DEALLOC))),
            (REGISTER_A, "one lane takes part in ldmatrix", only_lane_zero(first(r"ldmatrix"))),
            (BF16, "one lane commits the mma", only_lane_zero(first(r"wgmma\.commit_group"))),
        ],
        "missing initialisation": [
            (FP8, "block index never read", delete(before(r"mov\.u32\s+%r\d+, %ctaid\.y", EXPECT))),
            (BF16, "a barrier initialised twice", duplicate(first(r"mbarrier\.init"))),
            (FP8, "full barriers never initialised", delete(barrier_inits("full"))),
            (MXF8, "accumulator barrier never initialised", delete(barrier_inits("accumulator_full"))),
        ],
        "cp.async accounting": [
            ("cp_async-groups", "waits for one tile too few", change(first(r"cp\.async\.wait_group"), 0, add=1)),
            ("cp_async-mbarrier", "arrive without noinc", substitute(every(r"cp\.async\.mbarrier\.arrive"), r"\.noinc", "")),
            ("cp_async-mbarrier", "arrives before the copies have landed", substitute(every(r"cp\.async\.mbarrier\.arrive\S*"), r"cp\.async\.mbarrier\.arrive\.noinc\.shared::cta\.b64 ", "mbarrier.arrive.shared::cta.b64 _, ")),
        ],
        "cluster launch control misused": [
            ("clc_persistent-single", "index taken from a refusal", substitute(first(r"clusterlaunchcontrol\.query_cancel\.get"), r"@granted ", "")),
            ("clc_persistent-single", "goes on after a refusal", substitute(first(r"mov\.s32 %r\d+, -1"), "-1", "0")),
        ],
        "wrong operand": [
            (FP8, "A and B exchanged", substitute(every(WGMMA), r"(%rd\d+), (%rd\d+), accumulate", r"\2, \1, accumulate")),
            ("tma_reduce", "stores where it should add", substitute(first(r"cp\.reduce"), r"cp\.reduce(\S+)\.add\.tile", r"cp\1.tile")),
            (FP8, "B's tile loaded from A", substitute(first(r"mov\.b64\s+%rd\d+, \w+_param_1"), "_param_1", "_param_0")),
        ],
    }.items()
    for case, wrong, edits in group
]  # fmt: skip
