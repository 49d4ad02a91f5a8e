"""Reads cubins/manifest.json, one kernel at a time. docs/how_it_works.md describes it, zoo/contract/schema.py declares its records."""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from zoo.contract import entries
from zoo.contract.fields import Malformed, read
from zoo.contract.files import read_file
from zoo.contract.reading import parse_kernel
from zoo.contract.schema import SCHEMA, Argument, Form, Kernel, LaunchRule, ManifestFile, MapRecipe, Option, Parameter, Variant
from zoo.errors import ManifestError

__all__ = [
    "SCHEMA", "Argument", "Form", "Kernel", "LaunchRule", "Manifest", "MapRecipe", "Option", "Parameter", "Variant", "parse_kernel",
]  # fmt: skip


LARGEST = 16 << 20
MOST_KERNELS = 1024


def _parsed(text: str, pinned: bool) -> Any:
    """JSON without NaN and Infinity, and without a key that comes twice: of two readers each might take another."""
    return json.loads(text, parse_constant=_no_number, object_pairs_hook=None if pinned else once)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {reprlib.repr(key)} comes twice in one table")
        found[key] = value
    return found


class Manifest:
    """The kernels of one cubin directory, parsed one by one as they are asked for."""

    def __init__(self, path: Path, sha256: str | None = None):
        try:
            text = read_file(path, LARGEST)
        except OSError as error:
            raise ManifestError(f"cannot read the manifest {path}: {error.strerror}; reinstall zoo or run build_cubins.py") from None
        found = hashlib.sha256(text).hexdigest()
        if sha256 is not None and found != sha256:
            raise ManifestError(
                f"the manifest {path} was edited: its sha256 is {found}, expected {sha256}; "
                "reinstall zoo, or run build_cubins.py if you changed a table"
            )
        try:
            whole = text.decode("utf-8")
            apart = entries.apart(whole) if sha256 is not None else None
            data = _parsed(whole if apart is None else apart[0], pinned=sha256 is not None)
            if type(data) is dict and type(data.get("schema")) is int and data["schema"] != SCHEMA:
                wanted = "build it again with this zoo's build_cubins.py" if data["schema"] < SCHEMA else "install a newer zoo"
                raise ManifestError(f"the manifest {path} has schema {data['schema']}, this zoo reads {SCHEMA}; {wanted}")
            held = ManifestFile(**read(ManifestFile, data))
        except (ValueError, RecursionError, Malformed) as error:
            raise ManifestError(f"the manifest {path} is malformed: {error}") from None
        self._entries: Mapping[str, Any] = held.kernels if apart is None else apart[1]
        if len(self._entries) > MOST_KERNELS:
            raise ManifestError(f"the manifest {path} has {len(self._entries):,} kernels, this zoo reads at most {MOST_KERNELS:,}")
        self.compiler = held.compiler
        self.ptx_sha256 = held.ptx  # of what zoo.shipped.ptx.FILE holds; None where there is none
        self.path = path
        self.sha256 = found
        self._kernels: dict[str, Kernel] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All of them, which parses all of them."""
        return tuple(kernel for name in self._entries if (kernel := self.kernel(name)) is not None)

    def kernel(self, name: str) -> Kernel | None:
        kernel = self._kernels.get(name)
        if kernel is None and name in self._entries:
            kernel = self._kernels[name] = parse_kernel(name, self._entries[name])
        return kernel
