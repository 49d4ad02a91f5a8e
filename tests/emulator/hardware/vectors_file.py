"""The file of test vectors: for every instruction and input set what a GPU computed, small enough to commit.

An entry has a crc32 of its inputs (they are made again by cases.py: a changed generator is noticed), one crc32 per block of 2048
outputs (a difference is located to its block), and for matrices 16 rows of the first tile in full.  Everything lies in a few
concatenated arrays, because an .npz with thousands of members is mostly headers.
"""

from __future__ import annotations

import pathlib
import zlib

import numpy

BLOCK = 2048


def digest(arrays) -> int:
    value = 0
    for array in arrays:
        value = zlib.crc32(numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8), value)
    return value


def block_digests(array: numpy.ndarray) -> numpy.ndarray:
    flat = numpy.ascontiguousarray(array).reshape(-1)
    return numpy.array([zlib.crc32(flat[i : i + BLOCK].view(numpy.uint8)) for i in range(0, len(flat), BLOCK)], dtype=numpy.uint32)


class Writer:
    def __init__(self, gpu: str):
        self.gpu = gpu
        self.keys, self.inputs, self.blocks, self.rows = [], [], [], []

    def add(self, key: str, inputs, output: numpy.ndarray, rows: numpy.ndarray | None = None) -> None:
        self.keys.append(key)
        self.inputs.append(digest(inputs))
        self.blocks.append(block_digests(output))
        self.rows.append(numpy.empty(0, numpy.uint32) if rows is None else rows.reshape(-1).astype(numpy.uint32))

    def save(self, path: pathlib.Path) -> None:
        numpy.savez_compressed(
            path,
            gpu=numpy.array(self.gpu),
            keys=numpy.array(self.keys),
            inputs=numpy.array(self.inputs, dtype=numpy.uint32),
            block_counts=numpy.array([len(b) for b in self.blocks]),
            blocks=numpy.concatenate(self.blocks),
            row_counts=numpy.array([len(r) for r in self.rows]),
            rows=numpy.concatenate(self.rows),
        )


class Entry:
    def __init__(self, inputs: int, blocks: numpy.ndarray, rows: numpy.ndarray):
        self.inputs, self.blocks, self.rows = inputs, blocks, rows


def load(path: pathlib.Path) -> dict[str, Entry]:
    """Entries by key, in the order they were recorded."""
    data = numpy.load(path)
    blocks = numpy.split(data["blocks"], numpy.cumsum(data["block_counts"])[:-1])
    rows = numpy.split(data["rows"], numpy.cumsum(data["row_counts"])[:-1])
    return {str(k): Entry(int(i), b, r) for k, i, b, r in zip(data["keys"], data["inputs"], blocks, rows, strict=True)}
