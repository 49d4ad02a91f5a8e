"""Notes which instructions the first warps of an emulated kernel execute."""

from zoo.emulator.instructions import TABLE, load_tables


def note(monkeypatch, name, noted):
    """Calls `noted(warp)` before each instruction of that name, in kernels that are decoded from now on."""
    load_tables()
    decode = TABLE[name]

    def decoded(ins):
        run = decode(ins)

        def noting(warp, lanes):
            if warp.index == 0:
                noted(warp)
            return run(warp, lanes)

        return noting

    monkeypatch.setitem(TABLE, name, decoded)
