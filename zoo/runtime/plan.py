"""A launch in the driver's terms: the parameter block, the configuration of each stream, and the call itself."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zoo.contract.resolve import Launch
from zoo.errors import StreamError
from zoo.runtime import driver, streams
from zoo.runtime.tensor_map_encoder import encode, replace_address

_MOST_STREAMS = 64  # configurations kept; a plan launched on more streams than this makes them again
_ALIGNMENT = 64  # of a tensor map, hence of the block


class Block:
    """A parameter block at a fixed, aligned address, with the driver's list of pointers to each parameter in it.

    The list, and not the block as a whole, is what the driver gets: sm_90a places parameters that are aligned to 64 bytes
    by their absolute address in the constant bank, which begins at 0x210, so that the device's layout is not the block's.
    """

    def __init__(self, launch: Launch, order: Sequence[str]):
        """`order`: the arrays, as `pointers` holds their addresses; the kernel's pointer parameters are read from there."""
        self._memory = (ctypes.c_uint8 * (len(launch.block) + _ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address = -(-start // _ALIGNMENT) * _ALIGNMENT
        ctypes.memmove(self.address, launch.block, len(launch.block))
        self.pointers = (ctypes.c_uint64 * len(order))()
        cells = {name: ctypes.addressof(self.pointers) + 8 * index for index, name in enumerate(order)}
        places = {parameter.offset: self.address + parameter.offset for parameter in launch.variant.launch.parameters}
        for offset, name in launch.pointers:
            places[offset] = cells[name]
            (self.pointers[order.index(name)],) = struct.unpack_from("<Q", launch.block, offset)
        self._parameters = (ctypes.c_void_p * len(places))(*places.values())
        self.parameters = ctypes.addressof(self._parameters)


class Plan:
    """A resolved launch. `plan(stream)` enqueues it: no allocation, no lookup, no synchronisation, and capturable in a graph.

    It works on the addresses it was prepared with and keeps those arrays alive. It may be called from several threads.
    Without a stream it takes the current one of the arrays' framework.
    """

    # Whether `move` can point it at arrays of the same form elsewhere. A plan that is moved belongs to one thread.
    movable = True
    form: list[object] | None = None  # of the call that it was made for, where it is remembered

    def __init__(
        self,
        launch: Launch,
        device: driver.Device,
        function: object,
        arrays: Mapping[str, object],
        stream_source: Callable[[], int | None] = streams.none,
    ):
        """`arrays`: in the order in which `move` takes their addresses."""
        self.launch = launch
        self.device = device
        self._function = function
        self._keep = arrays
        self._stream_source = stream_source
        order = tuple(arrays)
        self._block = Block(launch, order)
        for offset, _, tensor_map in launch.tensor_maps:
            encode(tensor_map, self._block.address + offset)
        self._maps = tuple((self._block.address + offset, order.index(name)) for offset, name, _ in launch.tensor_maps)
        self._addresses: list[int] | None = None
        self._may_lie = launch.placement.in_order(order)
        self._parameters = self._block.parameters
        self._pointers = self._block.pointers
        self._configs: dict[int, object] = {}
        self._enqueue: Callable[..., tuple[Any, ...]] = _nothing if launch.empty else driver.bindings().cuLaunchKernelEx

    def __call__(self, stream: object = None) -> None:
        if stream is None:
            stream = self._stream_source()
        config = self._configs.get(stream) if type(stream) is int else None
        if config is None:
            config = self._configure(stream)
        if self._enqueue(config, self._function, self._parameters, 0)[0]:
            self._retry(config)

    run = __call__

    def __repr__(self) -> str:
        launch = self.launch
        return f"<plan of {launch.variant.symbol}: grid {launch.grid}, {launch.threads} threads, device {self.device.ordinal}>"

    def move(self, addresses: list[Any]) -> bool:
        """Points the launch at arrays of the same form elsewhere; whether they may lie there."""
        if addresses == self._addresses:
            return True
        if not self._may_lie(addresses):
            return False
        self._addresses = None  # neither the old nor the new ones, should this fail half-way
        self._pointers[:] = addresses
        for place, index in self._maps:
            if addresses[index]:  # an array without elements may be at 0, which the driver refuses here
                replace_address(place, addresses[index])
        self._addresses = addresses
        return True

    def _configure(self, stream: object) -> object:
        """The configuration for a stream, kept by its handle: an object that stands for a stream is asked each time."""
        if stream is None:
            raise StreamError(
                f"{self.launch.kernel}: these arguments belong to no framework with a current stream; "
                "pass stream= (0 is the legacy default stream)"
            )
        handle = streams.handle_of(stream)
        if handle in self._configs:
            return self._configs[handle]
        cuda = driver.bindings()
        launch = self.launch
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
        config.sharedMemBytes = launch.shared
        config.hStream = cuda.CUstream(handle)
        attributes = []
        if launch.cluster != (1, 1, 1):
            cluster = cuda.CUlaunchAttribute()
            cluster.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = launch.cluster
            attributes.append(cluster)
        if launch.variant.launch.programmatic:
            programmatic = cuda.CUlaunchAttribute()
            programmatic.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            programmatic.value.programmaticStreamSerializationAllowed = 1
            attributes.append(programmatic)
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        if len(self._configs) >= _MOST_STREAMS:
            self._configs = {}
        self._configs[handle] = config
        return config

    def _retry(self, config: object) -> None:
        """A thread in which no device, or another one, is current: the launch is valid once the plan's own device is."""
        if self.device.adopt_thread():
            result = self._enqueue(config, self._function, self._parameters, 0)
        else:
            with self.device.current():
                result = self._enqueue(config, self._function, self._parameters, 0)
        driver.check(result, f"launching {self.launch.variant.symbol}")


def _nothing(config: object, function: object, parameters: int, extra: int) -> tuple[int]:
    """What an empty launch enqueues."""
    return (0,)
