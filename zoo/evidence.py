"""What has been seen of a cubin's exact bytes: cubins/evidence.json, by sha256.

    {"<sha256>": {"gpu": {"device", "driver", "date", "checks", "error"}, "benchmark": {...}, "emulator": {...}}}

`error` is null where every check passed, else the first failure in words. A rebuilt cubin has a new digest and so no evidence.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from pathlib import Path

from zoo.errors import ManifestError, ZooError
from zoo.manifest import Variant

KINDS = ("gpu", "emulator", "benchmark")


class Evidence:
    """The evidence of one cubin directory. An absent file is no evidence."""

    def __init__(self, directory: Path):
        self.path = Path(directory) / "evidence.json"
        self._records: dict[str, dict[str, dict]] = {}
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return
        try:
            self._records = json.loads(text)
            well_formed = all(kind in KINDS for record in self._records.values() for kind in record)
        except (ValueError, AttributeError):
            well_formed = False
        if not well_formed:
            raise ManifestError(f"the evidence {self.path} is malformed; delete it and run `zoo verify --gpu --record`")

    def of(self, variant: Variant) -> dict[str, dict]:
        """kind -> record, for exactly this cubin."""
        return self._records.get(variant.sha256, {})

    def add(self, variant: Variant, kind: str, record: dict):
        """Replaces what was seen of this kind; other kinds stay. `date` is filled in."""
        if kind not in KINDS:
            raise ValueError(f"evidence is one of {', '.join(KINDS)}, not '{kind}'")
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        self._records.setdefault(variant.sha256, {})[kind] = {"date": today, **record}

    def keep_only(self, variants: Iterable[Variant]):
        """Forgets cubins that are shipped no more."""
        shipped = {variant.sha256 for variant in variants}
        self._records = {digest: record for digest, record in self._records.items() if digest in shipped}

    def write(self):
        try:
            whole = self.path.with_suffix(".new")
            whole.write_text(json.dumps(self._records, indent=1, sort_keys=True) + "\n")
            whole.replace(self.path)
        except OSError as error:
            raise ZooError(f"cannot write the evidence {self.path}: {error.strerror}; record from a checkout you may write") from None


def summary(evidence: Evidence, variants: Iterable[Variant]) -> str:
    """One line on what has been seen of these variants: `24 passed on NVIDIA H200`, `never run on a GPU`."""
    variants = list(variants)
    passed: dict[str, int] = {}
    failed = untested = emulated = 0
    for variant in variants:
        record = evidence.of(variant)
        emulated += "emulator" in record and record["emulator"].get("error") is None
        if "gpu" not in record:
            untested += 1
        elif record["gpu"]["error"] is not None:
            failed += 1
        else:
            passed[record["gpu"]["device"]] = passed.get(record["gpu"]["device"], 0) + 1
    parts = [f"{count} passed on {device}" for device, count in sorted(passed.items())]
    if failed:
        parts.append(f"{failed} FAILED on a GPU")
    if emulated:
        parts.append(f"{emulated} passed in the emulator")
    if untested == len(variants):
        parts.insert(0, "never run on a GPU")
    elif untested:
        parts.append(f"{untested} never run on a GPU")
    return ", ".join(parts)
