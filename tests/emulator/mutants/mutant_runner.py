"""Runs mutants on the emulator and says of each whether, and how, it was found.

python tests/emulator/mutants/mutant_runner.py [words of a name...]      prints the table; exit 1 when under 95 % are found; the tests ask for more
"""

import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "kernels"), str(FOLDER.parents[2])]

import proof_cases  # noqa: E402
from mutant_catalogue import MUTANTS  # noqa: E402
from mutant_edits import mutate  # noqa: E402
from proof_emulator import run  # noqa: E402

from zoo.emulator.errors import EmulatorError, ParseError, UnsupportedInstruction  # noqa: E402

GOAL = 0.95
INSTRUCTION_LIMIT = 400_000  # ten times what the longest kernel takes: a mutant that never ends is a livelock
# A bug is looked for under these schedules, in this order, until one shows it.
SCHEDULES = (
    {"scheduling": "last", "seed": 0},
    {"scheduling": "random", "seed": 1},
    {"scheduling": "random", "seed": 2},
    {"scheduling": "issue", "seed": 0},
)


@dataclass(frozen=True)
class Verdict:
    mutant: object
    found_by: str  # kind of the first finding, "wrong result", "error", or "" when nothing noticed
    schedule: dict
    detail: str

    def __str__(self):
        how = f"{self.found_by} ({self.schedule['scheduling']})" if self.found_by else "NOT FOUND"
        return f"{self.mutant.kind:42} {self.mutant.name:76} {how}"


def judge(mutant, compile_ptx):
    case = proof_cases.get(mutant.case)
    ptx = mutate(compile_ptx(case.path, case.arch), case.entry, mutant.edits)
    for schedule in SCHEDULES:
        try:
            result = run(case, ptx, instruction_limit=INSTRUCTION_LIMIT, **schedule)
        except (ParseError, UnsupportedInstruction):
            raise  # the edit made something that is not PTX: no merit of the emulator
        except EmulatorError as error:
            return Verdict(mutant, "error", schedule, str(error))
        if result.findings:
            return Verdict(mutant, result.findings[0].kind, schedule, str(result.findings[0]))
        if wrong := result.differences(case):
            return Verdict(mutant, "wrong result", schedule, wrong[0])
    return Verdict(mutant, "", schedule, "no finding, no deadlock and the right result under every schedule tried")


def main(words):
    from proof_compiler import NO_NVCC, Compiler, find_nvcc

    nvcc = find_nvcc()
    if nvcc is None:
        print(NO_NVCC)
        return 2
    compiler, missed, silent = Compiler(nvcc), [], 0
    chosen = [mutant for mutant in MUTANTS if all(word in f"{mutant.kind} {mutant.name}" for word in words)]
    for mutant in chosen:
        verdict = judge(mutant, compiler.ptx)
        print(verdict, flush=True)
        if words:
            print("   ", verdict.detail)
        missed += [] if verdict.found_by else [verdict]
        silent += verdict.found_by == "wrong result"
    share = 1 - len(missed) / max(1, len(chosen))
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mutants of {len({m.kind for m in chosen})} kinds found ({share:.1%})")
    print(f"{silent} of them by their wrong result alone, {len(chosen) - len(missed) - silent} by a finding")
    return int(share < GOAL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
