"""A clock for one CTA of a GEMM: when each unit is busy in the order that the emulator found, by published latencies and rates.

recorded.py    which tiles are emulated, and what does the emulator's order say about the whole launch?
chip.py        latencies and rates of a GPU, from a data file: h200.toml, b200.toml
pieces.py      how long does a warp take for instructions between two events?
replay.py      when does each event start and end?
prediction.py  how long does the launch take?
"""
