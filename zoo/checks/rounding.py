"""Drawn numbers of 64 bits as those of fewer: the same under every ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy

from zoo.contract.numpy_dtypes import numpy_dtype


def cast(values: numpy.ndarray, dtype: str | numpy.dtype[Any] | type) -> numpy.ndarray:
    """Rounded to 32 bits, and those to the dtype: ml_dtypes itself does so before 0.7, and rounds 64 bits at once from then on."""
    kind = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
    with numpy.errstate(over="ignore", under="ignore", invalid="ignore"):
        return numpy.asarray(values.astype(numpy.float32).astype(kind))
