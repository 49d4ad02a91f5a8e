"""What has been seen of a cubin's exact bytes: cubins/evidence.json, by sha256.

    {"<sha256>": {"gpu": {"device", "driver", "date", "checks", "error"}, "benchmark": {...}, "emulator": {...}}}

`error` is null where every check passed, else the first failure in words. A rebuilt cubin has a new digest and so no evidence.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from zoo.contract.manifest import Variant
from zoo.errors import ManifestError, ZooError

KINDS = ("gpu", "emulator", "benchmark")

Record: TypeAlias = dict[str, Any]  # what was seen of one kind, as JSON


class Evidence:
    """The evidence of one cubin directory. An absent file is no evidence."""

    def __init__(self, directory: Path):
        self.path = Path(directory) / "evidence.json"
        self._records: dict[str, dict[str, Record]] = {}
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise ManifestError(f"cannot read the evidence {self.path}: {error.strerror}") from None
        try:
            self._records = json.loads(text)
            well_formed = type(self._records) is dict and all(map(_is_record, self._records.values()))
        except (ValueError, RecursionError):
            well_formed = False
        if not well_formed:
            raise ManifestError(f"the evidence {self.path} is malformed; delete it and run `zoo verify --gpu --record`")

    def of(self, variant: Variant) -> dict[str, Record]:
        """kind -> record, for exactly this cubin."""
        return self._records.get(variant.sha256, {})

    def add(self, variant: Variant, kind: str, record: Record) -> None:
        """Replaces what was seen of this kind; other kinds stay. `date` is filled in."""
        if kind not in KINDS:
            raise ValueError(f"evidence is one of {', '.join(KINDS)}, not '{kind}'")
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        self._records.setdefault(variant.sha256, {})[kind] = {"date": today, **record}

    def keep_only(self, variants: Iterable[Variant]) -> None:
        """Forgets cubins that are shipped no more."""
        shipped = {variant.sha256 for variant in variants}
        self._records = {digest: record for digest, record in self._records.items() if digest in shipped}

    def write(self) -> None:
        try:
            whole = self.path.with_suffix(".new")
            whole.write_text(json.dumps(self._records, indent=1, sort_keys=True) + "\n")
            whole.replace(self.path)
        except OSError as error:
            raise ZooError(f"cannot write the evidence {self.path}: {error.strerror}; record from a checkout you may write") from None


def _is_record(record: Any) -> bool:
    """What every reader takes for granted."""
    if type(record) is not dict or any(kind not in KINDS or type(seen) is not dict for kind, seen in record.items()):
        return False
    gpu, emulator, benchmark = (record.get(kind) for kind in KINDS)
    if any(seen is not None and type(seen.get("error", 0)) not in (str, type(None)) for seen in (gpu, emulator)):
        return False
    if gpu is not None and type(gpu.get("device")) is not str:
        return False
    return benchmark is None or (
        type(benchmark.get("device")) is str
        and type(benchmark.get("shapes")) is dict
        and all(
            type(row) is dict and all(type(row.get(key)) in (int, float) for key in ("microseconds", "of_copy"))
            for row in benchmark["shapes"].values()
        )
    )


@dataclass(frozen=True)
class Seen:
    """How many variants passed on a GPU, failed on one, never ran on one, passed in the emulator; and passes by device."""

    passed: int
    failed: int
    never_run: int
    emulated: int
    devices: dict[str, int]


def seen(evidence: Evidence, variants: Iterable[Variant]) -> Seen:
    devices: dict[str, int] = {}
    failed = untested = emulated = 0
    for variant in variants:
        record = evidence.of(variant)
        emulated += "emulator" in record and record["emulator"].get("error") is None
        if "gpu" not in record:
            untested += 1
        elif record["gpu"]["error"] is not None:
            failed += 1
        else:
            devices[record["gpu"]["device"]] = devices.get(record["gpu"]["device"], 0) + 1
    return Seen(sum(devices.values()), failed, untested, emulated, dict(sorted(devices.items())))


def summary(evidence: Evidence, variants: Iterable[Variant]) -> str:
    """One line on what has been seen of these variants: `24 passed on NVIDIA H200`, `never run on a GPU`."""
    found = seen(evidence, variants)
    parts = [f"{count} passed on {device}" for device, count in found.devices.items()]
    if found.failed:
        parts.append(f"{found.failed} FAILED on a GPU")
    if found.emulated:
        parts.append(f"{found.emulated} passed in the emulator")
    if not found.passed and not found.failed:
        parts.insert(0, "never run on a GPU")
    elif found.never_run:
        parts.append(f"{found.never_run} never run on a GPU")
    return ", ".join(parts)
