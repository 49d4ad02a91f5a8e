"""Why a run cannot go on: the program is not understood, or the emulator was asked for something without meaning."""

from zoo.errors import EmulationError


class EmulatorError(EmulationError):
    """The emulator cannot give this run a meaning."""


class LaunchError(EmulatorError):
    """The grid, the block, the cluster, the shared memory or the parameters do not fit the kernel or the device."""


_LONGEST = 400  # of an instruction in a message


class ParseError(EmulatorError):
    """The PTX text is not understood."""

    def __init__(self, line, message):
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


class UnsupportedInstruction(EmulatorError):
    """An instruction or modifier that the emulator does not cover."""

    def __init__(self, line, text, why):
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        super().__init__(f"PTX line {line}: `{text}` is not covered by the emulator: {why}")
        self.line, self.text, self.why = line, text, why
