"""The packaged zoo cut down to a few variants: what a test says of one kernel need not unpack six hundred."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from zoo.shipped import ptx
from zoo.shipped.places import cubins_directory


def small_zoo(folder: Path, kernel: str, is_wanted: Callable[[dict], bool] = lambda variant: True) -> Path:
    """A cubin directory at `folder` with the wanted variants of one kernel, their PTX, and no evidence."""
    text, texts = _packaged(kernel)
    manifest = json.loads(text)
    entry = manifest["kernels"][kernel]
    entry["variants"] = [variant for variant in entry["variants"] if is_wanted(variant)]
    for variant in entry["variants"]:
        (folder / variant["file"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cubins_directory() / variant["file"], folder / variant["file"])
    _write(folder, manifest, {ptx.name_of(variant["file"]): texts[ptx.name_of(variant["file"])] for variant in entry["variants"]})
    return folder


@cache
def _packaged(kernel: str) -> tuple[str, dict[str, bytes]]:
    """The manifest of one kernel alone, and the PTX of its variants: what takes half a second to find is asked for often."""
    manifest = json.loads((cubins_directory() / "manifest.json").read_text())
    entry = manifest["kernels"][kernel]
    names = {ptx.name_of(variant["file"]) for variant in entry["variants"]}
    texts = ptx.read(cubins_directory() / ptx.FILE)
    return json.dumps({**manifest, "kernels": {kernel: entry}}), {name: texts[name] for name in names}


def edit_ptx(folder: Path, old: bytes, new: bytes):
    """Replaces a text in the PTX of every kernel and makes the digest fit."""
    texts = ptx.read(folder / ptx.FILE)
    changed = {name: text.replace(old, new) for name, text in texts.items()}
    assert changed != texts
    _write(folder, json.loads((folder / "manifest.json").read_text()), changed)


def _write(folder: Path, manifest: dict, texts: dict[str, bytes]):
    (folder / ptx.FILE).write_bytes(ptx.pack(texts))
    (folder / "manifest.json").write_text(json.dumps({**manifest, "ptx": ptx.digest(texts)}))
