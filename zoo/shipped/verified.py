"""The bytes of one cubin, read and held to the digest in the manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from zoo.contract.files import LARGEST_CUBIN, read_file
from zoo.contract.manifest import Variant
from zoo.errors import IntegrityError


def read_verified(directory: Path, variant: Variant) -> bytes:
    """The cubin's bytes, exactly those of the manifest."""
    path = directory / variant.file
    try:
        data = read_file(path, LARGEST_CUBIN)
    except OSError as error:
        raise IntegrityError(f"cannot read the cubin {path}: {error.strerror}; reinstall zoo") from None
    if len(data) != variant.bytes:
        raise IntegrityError(f"the cubin {path} has {len(data)} bytes, the manifest says {variant.bytes}; reinstall zoo")
    if hashlib.sha256(data).hexdigest() != variant.sha256:
        raise IntegrityError(f"the cubin {path} was altered: its sha256 is not the manifest's; reinstall zoo")
    return data
