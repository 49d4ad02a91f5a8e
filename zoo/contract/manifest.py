"""Reads cubins/manifest.json, one kernel at a time. docs/manifest.md is the schema."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from zoo.contract.fields import Malformed, read
from zoo.contract.reading import parse_kernel
from zoo.contract.schema import SCHEMA, Argument, Form, Kernel, LaunchRule, ManifestFile, MapRecipe, Option, Parameter, Variant
from zoo.errors import ManifestError

__all__ = [
    "SCHEMA", "Argument", "Form", "Kernel", "LaunchRule", "Manifest", "MapRecipe", "Option", "Parameter", "Variant", "parse_kernel",
]  # fmt: skip


class Manifest:
    """The kernels of one cubin directory, parsed one by one as they are asked for."""

    def __init__(self, path: Path, sha256: str | None = None):
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ManifestError(f"cannot read the manifest {path}: {error.strerror}; reinstall zoo or run build_cubins.py") from None
        found = hashlib.sha256(text).hexdigest()
        if sha256 is not None and found != sha256:
            raise ManifestError(
                f"the manifest {path} was edited: its sha256 is {found}, zoo was released with {sha256}; "
                "reinstall zoo, or run build_cubins.py if you changed a table"
            )
        try:
            data = json.loads(text)
            if type(data) is dict and type(data.get("schema")) is int and data["schema"] != SCHEMA:
                wanted = "build it again with this zoo's build_cubins.py" if data["schema"] < SCHEMA else "install a newer zoo"
                raise ManifestError(f"the manifest {path} has schema {data['schema']}, this zoo reads {SCHEMA}; {wanted}")
            held = ManifestFile(**read(ManifestFile, data))
        except (ValueError, RecursionError, Malformed) as error:
            raise ManifestError(f"the manifest {path} is malformed: {error}") from None
        self.compiler = held.compiler
        self.ptx_sha256 = held.ptx  # of what zoo.shipped.ptx.FILE holds; None where there is none
        self._entries = held.kernels
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
