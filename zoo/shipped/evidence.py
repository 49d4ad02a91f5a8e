"""What has been seen of a cubin's exact bytes: a file of records by sha256.

    {"<sha256>": {"gpu": {"device", "driver", "date", "checks", "error"}, "benchmark": {...}, "emulator": {...}}}

`error` is null where every check passed, else the first failure in words. A rebuilt cubin has a new digest and so no evidence.

A release's evidence is cubins/evidence.json, which zoo/shipped/evidence_pin.py pins. What a user of an installed zoo records goes to a file
of their own and is shown as theirs. The evidence beside another zoo's manifest is what its author says: nothing pins it.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from zoo.contract.files import is_partial, read_file, remove_partials, write_files
from zoo.contract.manifest import Variant
from zoo.errors import ArgumentError, IntegrityError, ManifestError, ZooError
from zoo.shipped import places

FILE = "evidence.json"
LARGEST = 16 << 20
KINDS = ("gpu", "emulator", "benchmark")
Record: TypeAlias = dict[str, Any]  # what was seen of one kind, as JSON
_RELEASED, _UNPINNED, _OWN = "", "unpinned: ", "by you: "


class Evidence:
    """One file of evidence. An absent file is none. `own`: what this user has seen of the same cubins, in another file."""

    def __init__(self, place: Path, sha256: str | None = None, whose: str = _RELEASED, own: Evidence | None = None):
        place = Path(place)
        self.path = place / FILE if place.suffix != ".json" else place
        self.whose, self.own = whose, own
        self._records, found = _read(self.path)
        if sha256 is not None and found != sha256:
            raise IntegrityError(
                f"the evidence {self.path} was edited: its sha256 is {found}, zoo was released with {sha256}; reinstall zoo, or, in a "
                "checkout, run build_cubins.py if you know what changed it"
            )
        self._added: dict[str, dict[str, Record]] = {}
        self._shipped: set[str] | None = None

    def of(self, variant: Variant) -> dict[str, Record]:
        """kind -> record, for exactly this cubin."""
        return self._records.get(variant.sha256, {})

    def add(self, variant: Variant, kind: str, record: Record) -> None:
        """Replaces what was seen of this kind, but for timings of other sizes on the same device; other kinds stay. `date` is filled in."""
        if kind not in KINDS:
            raise ValueError(f"evidence is one of {', '.join(KINDS)}, not '{kind}'")
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        dated = _printable({"date": today, **record})
        self._records.setdefault(variant.sha256, {})[kind] = dated
        self._added.setdefault(variant.sha256, {})[kind] = dated

    def keep_only(self, variants: Iterable[Variant]) -> None:
        """Forgets cubins that are shipped no more."""
        self._shipped = {variant.sha256 for variant in variants}
        self._records = {digest: record for digest, record in self._records.items() if digest in self._shipped}

    def refuse_unwritable(self) -> None:
        """Before an hour of running, not after it: ZooError where `write` could not."""
        with self._writing() as folder:
            probe = folder / f".{self.path.name}.{os.getpid()}.new"
            try:
                probe.write_bytes(b"")
            finally:
                probe.unlink(missing_ok=True)

    def write(self) -> None:
        """Adds what was seen here to what the file holds by now: another process may have recorded too."""
        with self._writing() as folder:
            records, _ = _read(self.path)
            for digest, seen in self._added.items():
                for kind, record in seen.items():
                    before = records.setdefault(digest, {}).get(kind)
                    records[digest][kind] = _merged(before, record) if kind == "benchmark" else record
            if self._shipped is not None:
                records = {digest: record for digest, record in records.items() if digest in self._shipped}
            data = (json.dumps(records, indent=1, sort_keys=True) + "\n").encode()
            for left in folder.glob(f".{self.path.name}.*"):
                if is_partial(left):  # nobody else writes here now, so whoever began it was killed
                    left.unlink()
            files = {self.path: data}
            if places.in_checkout() and self.path == places.cubins_directory() / FILE:
                pin = places.PACKAGE / "shipped" / "evidence_pin.py"
                remove_partials(pin.parent)
                files[pin] = pin_text(data).encode()
            write_files(files)
            self._records, self._added = records, {}

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Path]:
        """The folder, made if need be, to this process alone."""
        folder = self.path.parent
        try:
            if self.whose == _OWN:
                folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # a folder can be locked as a file can, and no lock file is left in it
                yield folder
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ZooError(
                f"cannot write the evidence {self.path}: {error.strerror}; record where you may write, with --record-to FILE.json"
            ) from None


def evidence_of(directory: Path) -> Evidence:
    """What is shown of the zoo in a directory."""
    if not places.is_packaged(directory):
        return Evidence(directory, whose=_UNPINNED)
    from zoo.shipped.evidence_pin import EVIDENCE_SHA256

    return Evidence(directory, EVIDENCE_SHA256, own=Evidence(places.own_evidence(), whose=_OWN))


def recorder(directory: Path, file: Path | None = None) -> Evidence:
    """What new evidence is added to: `file`; else of installed cubins the user's own, and of others the file beside the manifest."""
    if file is not None:
        if not file.name:
            raise ArgumentError("record to a file, such as --record-to seen.json; the name that was given is empty")
        return Evidence(file, whose=_OWN)
    if places.is_packaged(directory) and not places.in_checkout():
        return Evidence(places.own_evidence(), whose=_OWN)
    return Evidence(directory)


def pin_text(evidence: bytes) -> str:
    digest = hashlib.sha256(evidence).hexdigest()
    return f'"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""\n\nEVIDENCE_SHA256 = "{digest}"\n'


def problem(directory: Path) -> str | None:
    """What is wrong with the evidence of a directory, or None."""
    try:
        evidence_of(directory)
    except ZooError as error:
        return str(error)
    return None


def _read(path: Path) -> tuple[dict[str, dict[str, Record]], str]:
    """The records in a file, and its digest."""
    try:
        text = read_file(path, LARGEST)
    except FileNotFoundError:
        text = b"{}"
    except OSError as error:
        raise ManifestError(f"cannot read the evidence {path}: {error.strerror}") from None
    try:
        records = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if type(records) is dict and all(map(_is_record, records.values())):
            plain = b"\\" not in text and text.replace(b"\n", b"").decode().isprintable()  # nothing is spelled by an escape either
            return records if plain else _printable(records), hashlib.sha256(text).hexdigest()
    except (ValueError, RecursionError):
        pass
    raise ManifestError(f"the evidence {path} is malformed; delete it and run `zoo verify --gpu --record`")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    """JSON can spell numbers past all floats, which would be written back as Infinity."""
    if math.isinf(value := float(text)):
        raise ValueError(f"{text} is too large")
    return value


def _printable(value: Any) -> Any:
    """The same with every character that a terminal would obey, or that could feign a line, replaced."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def _merged(before: Record | None, timed: Record) -> Record:
    """Timings beside those of other sizes on the same device."""
    kept = before["shapes"] if before is not None and before["device"] == timed["device"] else {}
    return {**timed, "shapes": kept | timed["shapes"]}


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
            type(row) is dict and all(_is_number(row.get(key)) for key in ("microseconds", "of_copy"))
            for row in benchmark["shapes"].values()
        )
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


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
    variants = list(variants)
    found = seen(evidence, variants)
    parts = _parts(found)
    if not found.passed and not found.failed:
        parts.insert(0, "never run on a GPU")
    elif found.never_run:
        parts.append(f"{found.never_run} never run on a GPU")
    whose = evidence.whose if found.passed or found.failed or found.emulated else ""
    own = _parts(seen(evidence.own, variants)) if evidence.own is not None else []
    return whose + ", ".join(parts) + (f"; {_OWN}{', '.join(own)}" if own else "")


def _parts(found: Seen) -> list[str]:
    parts = [f"{count} passed on {device}" for device, count in found.devices.items()]
    if found.failed:
        parts.append(f"{found.failed} FAILED on a GPU")
    if found.emulated:
        parts.append(f"{found.emulated} passed in the emulator")
    return parts
