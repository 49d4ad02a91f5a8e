"""From a tree of tables to cubins and their manifest; only what changed is compiled."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import click

from tools.builder import BuildError, sass
from tools.builder.compiler import Compiled, Compiler
from tools.builder.expand import Variant, expand
from tools.builder.output import manifest_text, pins_text
from tools.builder.scope import check_scope
from tools.builder.sources import Sources
from tools.builder.table import read_tables
from zoo.cli.system import undisturbed
from zoo.contract.files import remove_partials, write_files
from zoo.contract.manifest import SCHEMA, Manifest, parse_kernel
from zoo.contract.manifest import Variant as ShippedVariant
from zoo.contract.schema import ARCH
from zoo.errors import IntegrityError, ZooError
from zoo.shipped import ptx
from zoo.shipped.cubin_file import read_cubin
from zoo.shipped.evidence import Evidence
from zoo.shipped.integrity import disagreements

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Selection:
    archs: tuple[str, ...] = ()
    pattern: str | None = None

    def holds(self, variant: Variant) -> bool:
        if self.archs and variant.arch not in self.archs:
            return False
        names = (variant.table.name, f"{variant.table.name} {variant.name}")
        return self.pattern is None or any(fnmatch.fnmatchcase(name, self.pattern) for name in names)


@dataclass(frozen=True)
class Unit:
    variant: Variant
    text: str
    source_sha256: str


@dataclass
class Fresh:
    """A build's outcome in memory."""

    cubins: dict[str, bytes]  # file -> bytes
    texts: dict[str, bytes]  # the PTX of each, as the archive holds it
    manifest: str
    compiled: int
    missing: int


class Build:
    def __init__(self, compiler: Compiler, roots: list[Path], output: Path, pins: Path | None, jobs: int):
        self.compiler, self.roots, self.output, self.pins, self.jobs = compiler, roots, output, pins, jobs
        self.tables = read_tables(*roots)
        for table in self.tables:
            check_scope(table)
        sources = Sources(roots)
        self.units = []
        variants: list[Variant] = []
        for table in self.tables:
            variants += expand(table)
        owners = _owners(variants)
        for variant in variants:
            text = owners[variant.file].unit()
            if not _takes_signature(sources.files(text).values()):
                raise BuildError(
                    f"{variant.words}: {variant.source} must take ZOO_KERNEL(ZOO_PARAMETERS), the parameters of the table's signature"
                )
            self.units.append(Unit(variant, text, sources.digest(text)))
        self.count, self.compiled = len(self.units), 0

    def run(self, selection: Selection) -> str:
        """Builds what changed and is selected, writes it, and says what was done."""
        self._refuse_empty(selection)
        _refuse_unwritable(self.output)
        if self.pins:
            sass.disassembler()
        for folder in (self.output, *((self.pins.parent,) if self.pins else ())):
            remove_partials(folder)
        fresh = self._build(selection, self._previous())
        files = {self.output / file: data for file, data in fresh.cubins.items()}
        if self._texts_on_disk() != fresh.texts:
            files[self.output / ptx.FILE] = ptx.pack(fresh.texts)
        files[self.output / "manifest.json"] = fresh.manifest.encode()
        if self.pins:
            files[self.output / sass.FILE] = self._sass(fresh, sass.read(self.output / sass.FILE)).encode()
            files[self.pins] = pins_text(hashlib.sha256(fresh.manifest.encode()).hexdigest()).encode()
        written = sum(path.suffix == ".cubin" for path in _write(files))
        removed = self._remove_stale(fresh.cubins)
        manifest = Manifest(self.output / "manifest.json")
        self._trim_evidence(variant for kernel in manifest.kernels for variant in kernel.variants)
        total = sum(map(len, fresh.cubins.values()))
        variants = sum(unit.variant.file in fresh.cubins for unit in self.units)
        said = f"{variants} variants, {len(fresh.cubins)} cubins, {total / 1e6:.2f} MB: {fresh.compiled} compiled, {written} changed, {removed} removed"
        if fresh.missing:
            said += f"\n{fresh.missing} variants are out of date or not built yet, and not in the manifest; run without --arch and --only"
        return said

    def check(self, share: int = 1) -> list[str]:
        """A fresh build, compared with what is on disk: one line for each file that differs.

        Compiles every variant whose sources are not those of its cubin, and one in `share` of the others, drawn at random."""
        previous = self._previous() if share > 1 else {}
        kept = {file: entry for file, entry in previous.items() if random.randrange(share)}
        fresh = self._build(Selection(), kept)
        self.compiled = fresh.compiled
        expected = {self.output / file: data for file, data in fresh.cubins.items()}
        expected[self.output / "manifest.json"] = fresh.manifest.encode()
        if self.pins:
            counted = sass.read(self.output / sass.FILE)
            expected[self.output / sass.FILE] = self._sass(fresh, {file: counted[file] for file in kept if file in counted}).encode()
            expected[self.pins] = pins_text(hashlib.sha256(fresh.manifest.encode()).hexdigest()).encode()
        lines = [] if self._texts_on_disk() == fresh.texts else [f"{self.output / ptx.FILE}: differs"]
        for path, data in expected.items():
            if not path.is_file():
                lines.append(f"{path}: missing")
            elif path.read_bytes() != data:
                lines.append(f"{path}: differs")
        stale = sorted(path for path in self.output.glob("*/*.cubin") if path not in expected)
        return lines + [f"{path}: no table has this variant" for path in stale]

    def _sass(self, fresh: Fresh, before: dict[str, dict[str, Any]]) -> str:
        """The report on the machine code of what is shipped."""
        texts = {file: fresh.texts[ptx.name_of(file)].decode() for file in fresh.cubins}
        said = sass.report(fresh.cubins, texts, before, self.jobs)
        refused = sass.refusals(said)
        if refused:
            raise BuildError("the machine code has what no kernel may have\n" + "\n".join(refused))
        return said

    def write_ptx(self, selection: Selection, folder: Path) -> int:
        self._refuse_empty(selection)
        _refuse_unwritable(folder)
        units = [unit for unit in self.units if selection.holds(unit.variant)]
        _write({folder / name: text for name, text in self._ptx_of(units).items()})
        return len(units)

    def _ptx_of(self, units: list[Unit]) -> dict[str, bytes]:
        def compile_one(unit: Unit) -> bytes:
            return self.compiler.text(unit.text, unit.variant.arch, self.roots).ptx.encode()

        return {ptx.name_of(unit.variant.file): text for unit, text in self._each(units, compile_one)}

    def _texts_on_disk(self) -> dict[str, bytes]:
        try:
            return ptx.read(self.output / ptx.FILE)
        except (OSError, IntegrityError):
            return {}

    def _refuse_empty(self, selection: Selection) -> None:
        if not any(selection.holds(unit.variant) for unit in self.units):
            names = ", ".join(table.name for table in self.tables)
            archs = ", ".join(dict.fromkeys(unit.variant.arch for unit in self.units))
            raise BuildError(f"no variant is selected; kernels: {names}; archs: {archs}")

    def _previous_texts(self) -> dict[str, bytes]:
        """The archive on disk, where it is the one that the manifest on disk means."""
        texts = self._texts_on_disk()
        try:
            said = json.loads((self.output / "manifest.json").read_bytes())["ptx"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return texts if ptx.digest(texts) == said else {}

    def _previous(self) -> dict[str, dict[str, Any]]:
        """file -> its entry in the manifest on disk, where file and entry still agree and the compiler is the same.

        Of whatever schema: what is taken from it is which sources a cubin was made of, and what the compiler said of it."""
        try:
            manifest = json.loads((self.output / "manifest.json").read_bytes())
            if manifest["compiler"] != self.compiler.record:
                return {}
            entries = {variant["file"]: variant for kernel in manifest["kernels"].values() for variant in kernel["variants"]}
            whole = {file: entry for file, entry in entries.items() if entry.keys() >= {"source_sha256", *_SAID_ONCE}}
            return {file: entry for file, entry in whole.items() if _digest_of(self.output / file) == entry["sha256"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # no manifest, or not ours: build everything

    def _build(self, selection: Selection, previous: dict[str, dict[str, Any]]) -> Fresh:
        waiting: dict[str, Unit] = {}
        kept, missing = {}, 0
        for unit in self.units:
            entry = previous.get(unit.variant.file)
            if entry and entry["source_sha256"] == unit.source_sha256:
                kept[unit.variant.file] = entry
            elif selection.holds(unit.variant):
                waiting.setdefault(unit.variant.file, unit)
            else:
                missing += 1  # an old cubin under the new table's constants and grid would be worse than none

        def compile_one(unit: Unit) -> Compiled:
            return self.compiler.compiled(unit.text, unit.variant.arch, self.roots)

        compiled = {unit.variant.file: result for unit, result in self._each(list(waiting.values()), compile_one)}
        texts = self._texts(kept) | {ptx.name_of(file): result.text.ptx.encode() for file, result in compiled.items()}
        kernels, cubins = {}, {}
        for table in self.tables:
            entries = []
            for unit in self.units:
                file = unit.variant.file
                if unit.variant.table is not table or (file not in compiled and file not in kept):
                    continue
                if file in compiled:
                    one = compiled[file]
                    data, said = one.cubin, (one.text.dynamic_shared, one.spill_stores, one.spill_loads)
                else:
                    data, said = (self.output / file).read_bytes(), tuple(kept[file][key] for key in _SAID_ONCE)
                cubins[file] = data
                entries.append(_variant_entry(unit, data, dict(zip(_SAID_ONCE, said, strict=True))))
            if entries:
                kernels[table.name] = {**table.entry, "variants": entries}
        self._read_back(kernels, cubins)
        manifest = {"schema": SCHEMA, "compiler": self.compiler.record, "ptx": ptx.digest(texts), "kernels": kernels}
        return Fresh(cubins, texts, manifest_text(manifest), len(compiled), missing)

    def _texts(self, kept: dict[str, dict[str, Any]]) -> dict[str, bytes]:
        """The PTX of what is kept, compiled where the archive does not have it."""
        before = self._previous_texts() if kept else {}
        texts, without = {}, []
        for unit in self.units:
            file = unit.variant.file
            if file in kept and ptx.name_of(file) in before:
                texts[ptx.name_of(file)] = before[ptx.name_of(file)]
            elif file in kept:
                without.append(unit)
        return texts | self._ptx_of(without)

    def _each(self, units: list[Unit], work: Callable[[Unit], _Result]) -> Iterable[tuple[Unit, _Result]]:
        """Runs `work` on all, in parallel, with a progress bar. All failures are told, not only the first."""
        failures: dict[tuple[str, str], list[Variant]] = {}  # by source and message: one typo in a header fails every variant
        results = []
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                with undisturbed():  # Ctrl-C within a lock of the pool would leave it locked
                    futures = {pool.submit(work, unit): unit for unit in units}
                    ended: SimpleQueue[Future[_Result]] = SimpleQueue()
                    for future in futures:
                        future.add_done_callback(ended.put)
                each = (ended.get() for _ in futures)
                with click.progressbar(each, len(futures), "compiling", hidden=not futures, file=sys.stderr) as bar:
                    for future in bar:
                        unit = futures[future]
                        try:
                            results.append((unit, future.result()))
                        except BuildError as error:
                            failures.setdefault((str(unit.variant.source), str(error)), []).append(unit.variant)
            except BaseException:  # Ctrl-C, SIGTERM, a full disk: the pool would still compile all that waits
                pool.shutdown(wait=False, cancel_futures=True)
                self.compiler.stop()
                raise
        if failures:
            raise BuildError("\n\n".join(sorted(_failure(*failure, variants) for failure, variants in failures.items())))
        return results

    def _read_back(self, kernels: dict[str, dict[str, Any]], cubins: dict[str, bytes]) -> None:
        problems = []
        sources = {unit.variant.file: unit.variant.source for unit in self.units}
        for name, entry in kernels.items():
            try:
                kernel = parse_kernel(name, entry)  # as every reader will
            except ZooError as error:
                raise BuildError(str(error)) from None
            for variant in kernel.variants:
                try:
                    found = disagreements(kernel, variant, cubins[variant.file])
                except IntegrityError as error:
                    found = [str(error)]
                problems += [f"{name} {variant.name} ({variant.arch}, {sources[variant.file]}): {problem}" for problem in found]
        if problems:
            raise BuildError("the compiled kernels are not what the tables say\n" + "\n".join(problems))

    def _remove_stale(self, cubins: dict[str, bytes]) -> int:
        """Cubins that the new manifest does not know, and folders that this leaves empty."""
        stale = [path for path in self.output.glob("*/*.cubin") if path.relative_to(self.output).as_posix() not in cubins]
        for path in stale:
            path.unlink()
        for folder in self.output.iterdir():
            if ARCH.fullmatch(folder.name) and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return len(stale)

    def _trim_evidence(self, variants: Iterable[ShippedVariant]) -> None:
        """What was seen of bytes that no longer exist is no evidence of anything."""
        if (self.output / "evidence.json").is_file():
            evidence = Evidence(self.output)
            evidence.keep_only(variants)
            evidence.write()


def _owners(variants: Iterable[Variant]) -> dict[str, Variant]:
    """file -> the variant whose unit it is made of."""
    owners: dict[str, Variant] = {}
    others = []
    for variant in variants:
        if variant.owner != variant.table.name:
            others.append(variant)
        elif (other := owners.setdefault(variant.file, variant)) is not variant:
            raise BuildError(f"{variant.words} and {other.words} have one symbol, {other.symbol}; rename a tile")
    for variant in others:
        owner = owners.get(variant.file)
        if owner is None or owner.table.name != variant.owner:
            raise BuildError(f"{variant.words}: {variant.owner} has no variant {variant.name} for {variant.arch}, whose cubin it would be")
        if owner.made_of != variant.made_of:
            raise BuildError(
                f"{variant.words}: its cubin is that of {owner.words}, which has another source, another pipeline, other constants or another signature"
            )
    return owners


_KERNEL = re.compile(rb"\bZOO_KERNEL\s*\((.*?)\)", re.DOTALL)


def _takes_signature(files: Iterable[bytes]) -> bool:
    """Whether the kernel of these files takes the generated parameters, and no list of its own."""
    lists = [found.strip() for file in files for found in _KERNEL.findall(re.sub(rb"//[^\n]*", b"", file))]
    return bool(lists) and all(one == b"ZOO_PARAMETERS" for one in lists)


# what the compiler says of a variant and its cubin does not hold
_SAID_ONCE = ("shared", "spill_stores", "spill_loads")


def _variant_entry(unit: Unit, cubin: bytes, said: dict[str, int]) -> dict[str, Any]:
    variant = unit.variant
    try:
        kernels = read_cubin(cubin).kernels
    except IntegrityError as error:
        raise BuildError(f"{variant.words}: the compiler's output is not readable: {error}") from None
    if tuple(kernels) != (variant.symbol,):
        found = ", ".join(kernels) or "none"
        one = f"must define one kernel, ZOO_KERNEL ({variant.symbol})"
        raise BuildError(f"{variant.words}: {variant.source} {one}; it defines {found}")
    if variant.tile.pipeline is not None and "ZOO_PIPELINE" not in variant.source.read_text():
        raise BuildError(
            f"{variant.words}: pipeline = {variant.tile.pipeline}, but {variant.source} has one pipeline only: it does not read ZOO_PIPELINE"
        )
    compiled = kernels[variant.symbol]
    if compiled.threads is None:
        raise BuildError(f"{variant.words}: {variant.source} must say of ZOO_KERNEL how many threads it has: __launch_bounds__(...)")
    return {
        "name": variant.name, "arch": variant.arch, "dtypes": variant.dtypes, "options": variant.options,
        "constants": variant.constants, "numbers": variant.tile.numbers, "tensor": variant.tile.tensor, "rates": variant.tile.rates,
        "launch": variant.tile.launch, "when": variant.tile.when, "cost": variant.tile.cost,
        "file": variant.file, "bytes": len(cubin), "sha256": hashlib.sha256(cubin).hexdigest(), "source_sha256": unit.source_sha256,
        "symbol": variant.symbol, "signature": variant.signature.digest, "threads": compiled.threads[0], "registers": compiled.registers,
        "static_shared": compiled.static_shared, "shared": said["shared"], "stack": compiled.stack,
        "spill_stores": said["spill_stores"], "spill_loads": said["spill_loads"],
    }  # fmt: skip


def _failure(source: str, message: str, variants: list[Variant]) -> str:
    """The compiler's message once, and whom it is about."""
    first, *others = sorted(variants, key=lambda variant: variant.words)
    alike = [f"{variant.name} ({variant.arch})" if variant.table is first.table else variant.words for variant in others]
    said = f"{first.words} does not compile: {source}\n{message}"
    return f"{said}\nand {len(alike)} more alike: {', '.join(alike)}" if alike else said


def _refuse_unwritable(folder: Path) -> None:
    """Before minutes of compiling, not after."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not place.is_dir():
        raise BuildError(f"cannot write to {folder}: {place} is not a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise BuildError(f"cannot write to {folder}: nobody may write to {place} as this user")


def _digest_of(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _write(files: Mapping[Path, bytes]) -> list[Path]:
    """All of them or, where the disk is too full, none; those that stay as they are keep their time. The files that changed."""
    changed = {path: data for path, data in files.items() if not (path.is_file() and path.read_bytes() == data)}
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_files(changed)
    return list(changed)
