"""What the emulator reports: one record per defect, de-duplicated by kind and PTX line."""

from typing import NamedTuple

# kind -> what it means. A finding of a kind that is not here is a programming error of the emulator.
KINDS = {
    "deadlock": "nobody can go on",
    "livelock": "the instruction budget ran out",
    "out-of-bounds": "an address outside every allocation of its memory",
    "misaligned": "an address that is not a multiple of what the access needs",
    "uninitialised-register": "a register read before anything was written to it",
    "uninitialised-shared": "a shared-memory byte read before anything was written to it",
    "uninitialised-global": "a global-memory byte read before anything was written to it",
    "uninitialised-local": "a local-memory byte read before anything was written to it",
    "uninitialised-tensor-memory": "a tensor-memory cell read before anything was written to it",
    "missing-proxy-fence": "generic writes to shared memory, or to a tensor map, reach an asynchronous read without their proxy fence",
    "missing-tcgen05-fence": "tcgen05 work ordered by a barrier without the tcgen05 fence on one side",
    "missing-dependency-wait": "a programmatic launch uses global memory before griddepcontrol.wait",
    "missing-wait": "a result used before the wait that completes it",
    "missing-wgmma-fence": "wgmma uses registers that other instructions used since the last wgmma.fence",
    "source-overwritten": "a source of an asynchronous operation changed before the operation completed",
    "pending-destination": "the destination of a pending asynchronous operation was touched",
    "scope": "a release or an acquire whose scope leaves out the CTA on the other side",
    "race": "two threads access the same memory, one writes, and nothing orders them",
    "barrier-misuse": "a named or cluster barrier used against its rules",
    "mbarrier-misuse": "an mbarrier used against its rules",
    "mbarrier-phase": "an arrive although nobody observed the phase before, or a wait (by state) for a phase too old",
    "mbarrier-exit": "an mbarrier is in the middle of a phase when its CTA exits",
    "tensor-memory-misuse": "tensor memory allocated, freed or addressed against its rules",
    "tensor-memory-leak": "tensor memory still allocated when the CTA exits",
    "divergent-aligned": "an .aligned instruction not executed by all lanes of the warp together",
    "divergent-operand": "lanes disagree on an operand that must be the same in all",
    "divergent-warpgroup": "the warps of a warpgroup do not execute a warpgroup instruction together",
    "convergence": "a .sync instruction without all lanes of its member mask",
    "invalid-descriptor": "a descriptor that hardware does not define, or a handle of no texture or surface that the instruction can use",
    "tensor-map": "a tensor copy against the rules of its tensor map",
    "bulk-copy": "a bulk copy against its rules",
    "pending-at-exit": "a CTA exits with asynchronous work that still needs its memory",
    "exited-cta": "a CTA is addressed that has exited, or that nothing says has started",
    "cluster-launch-control": "clusterlaunchcontrol used against its rules",
    "register-count": "setmaxnreg used against its rules",
    "invalid-call": "a call of an address where no function begins, or of a function with another signature",
    "invalid-free": "free of an address that malloc did not return, or that was freed before",
    "stack-overflow": "a thread's calls and alloca need more stack than it has",
    "trap": "the kernel trapped or an assertion failed",
    "arithmetic": "a value operation used outside what hardware defines",
}


# error: wrong by the manual, and a GPU may show it. warning: wrong by the manual, harmless on every GPU of today. note: worth a look.
SEVERITIES = ("error", "warning", "note")

OTHER_CTA = "another CTA"  # in messages of races between CTAs
_LONGEST_NAME = 64  # of a kernel in a finding's text; mangled names of templates are longer
_MOST_OTHERS = 64  # earlier accesses that are remembered of a finding


class Access(NamedTuple):
    """An earlier access: "written" or "read", and the place of its instruction."""

    access: str
    line: int
    text: str
    source: str | None
    callers: tuple


class Finding:
    """One defect: how severe it is, where it is and a sentence on what is wrong."""

    __slots__ = (
        "kind", "severity", "kernel", "cta", "warp", "lanes", "line", "text", "source", "callers", "block", "address", "message", "count", "others",
    )  # fmt: skip

    def __init__(
        self, kind, message, *, kernel, severity="error", cta=None, warp=None, lanes=None, line=None, text=None, source=None, callers=(), block=None,
        address=None, other=None,
    ):  # fmt: skip
        if kind not in KINDS:
            raise ValueError(f"unknown kind of finding {kind!r}: add it to zoo/emulator/findings.py KINDS")
        if severity not in SEVERITIES:
            raise ValueError(f"unknown severity {severity!r}: it is one of {', '.join(SEVERITIES)}")
        self.kind, self.severity, self.message, self.kernel = kind, severity, message, kernel
        self.cta, self.warp, self.lanes, self.address = cta, warp, lanes, address
        self.line, self.text, self.source = line, text, source
        self.callers = callers  # where the code was inlined, innermost first
        self.block = block  # number of the basic block
        self.others = []  # earlier accesses that this one meets
        if other is not None:
            access, ins = other
            self.others.append(Access(access, ins.line, ins.text, ins.source, ins.callers))
        self.count = 1

    def __str__(self):
        where = [self.kernel if len(self.kernel) <= _LONGEST_NAME else self.kernel[: _LONGEST_NAME - 3] + "..."]
        if self.cta is not None:
            where.append(f"CTA {self.cta}")
        if self.warp is not None:
            where.append(f"warp {self.warp}")
        if self.lanes is not None:
            where.append(f"lanes {self.lanes:#010x}")
        if self.line is not None:
            where.append(f"PTX line {self.line}" + (f" `{self.text}`" if self.text else ""))
        if self.source is not None:
            where.append(f"source {self.source}")
        if self.address is not None:
            where.append(f"address {self.address:#x}")
        times = f" ({self.count} times)" if self.count > 1 else ""
        severity = "" if self.severity == "error" else f"{self.severity}, "
        return f"{severity}{self.kind}: {self.message} [{', '.join(where)}]{times}"

    __repr__ = __str__


class Findings:
    """The findings of a launch; the same kind and severity at the same PTX line counts once, with a counter."""

    def __init__(self):
        self._by_place = {}

    def add(self, finding):
        place = (finding.kind, finding.severity, finding.line, finding.line is None and finding.message)
        known = self._by_place.setdefault(place, finding)
        if known is not finding:
            known.count += finding.count
            known.others += [other for other in finding.others if other not in known.others and len(known.others) < _MOST_OTHERS]
        return known

    def __iter__(self):
        return iter(self._by_place.values())

    def __len__(self):
        return len(self._by_place)
