"""The PTX of one cubin directory as modules, parsed once a variant but for those that were used long ago: each takes some 10 MB."""

from __future__ import annotations

import threading
from pathlib import Path

from zoo.contract.manifest import Manifest, Variant
from zoo.shipped.ptx import Texts

from .device import Module


class ModuleStore:
    MOST = 16

    def __init__(self, directory: Path, manifest: Manifest):
        self._texts = Texts(directory)
        self._manifest = manifest
        self._modules: dict[str, Module] = {}  # by the cubin's digest
        self._lock = threading.Lock()

    def of(self, variant: Variant) -> Module:
        with self._lock:
            module = self._modules.pop(variant.sha256, None) or Module(self._texts.of(variant, self._manifest))
            self._modules[variant.sha256] = module  # the last used is the last
            if len(self._modules) > self.MOST:
                del self._modules[next(iter(self._modules))]
            return module
