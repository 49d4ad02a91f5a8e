"""Every refusal of zoo is one of these, raised before anything is enqueued."""


class ZooError(Exception):
    """Base of all errors that zoo raises on purpose."""


class ExpressionError(ZooError):
    """A recipe expression is malformed, or cannot be evaluated (overflow, division by zero)."""


class ManifestError(ZooError):
    """The manifest is missing, edited, of another schema, or contradicts itself."""


class IntegrityError(ZooError):
    """A cubin is missing, truncated, altered, or not what the manifest says."""


class UnknownKernelError(ZooError):
    """No kernel of that name."""


class ArgumentError(ZooError):
    """An argument is missing, unknown, or of the wrong kind, dtype, shape, strides, alignment or device."""


class ConstraintError(ArgumentError):
    """The arguments fit each other but not what the kernel can do."""


class VariantError(ZooError):
    """No variant of the kernel fits these dtypes, options and sizes."""


class ArchitectureError(ZooError):
    """The zoo ships no cubin of this kernel that runs on this device."""


class StreamError(ZooError):
    """No stream was given and none can be inferred, or the stream cannot be used."""


class CaptureError(ZooError):
    """The call would have to load a kernel while its stream is being captured."""


class DriverError(ZooError):
    """The CUDA driver is absent or reported a failure. `.status` holds its number, 0 when there is no driver."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class EmulationError(ZooError):
    """The emulator cannot run the kernel, or found something wrong in it."""


class ForkError(DriverError):
    """CUDA was initialised before this process was forked; the child cannot use it."""


class RankError(ZooError):
    """Another rank of a process group has ended, is late, or does not fit this one."""
