"""How many clusters of blocks run at once if each block has a multiprocessor to itself: a chip whose groups of multiprocessors are not full has
room for fewer large clusters than it has multiprocessors."""

from __future__ import annotations

from zoo.contract.manifest import Variant
from zoo.runtime import driver
from zoo.runtime.library import Library

SIZES = (1, 2, 4, 8, 16)


def clusters_at_once(library: Library, variant: Variant, device: driver.Device) -> dict[int, int]:
    """By the size of the cluster. 0: none of this size fits, or the driver does not say. The variant must let its launch choose the cluster."""
    cuda, function = driver.bindings(), library.function(variant, device)
    attributes = cuda.CUfunction_attribute
    shared, found = device.shared_memory - variant.static_shared, {}
    with device.current():
        for attribute, value in (
            (attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
            (attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
        ):
            driver.check(cuda.cuFuncSetAttribute(function, attribute, value), f"preparing {variant.symbol} for clusters")
        for size in SIZES:
            cluster = cuda.CUlaunchAttribute()
            cluster.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = size, 1, 1
            config = cuda.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = size * device.multiprocessors, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
            config.sharedMemBytes = shared
            config.attrs, config.numAttrs = [cluster], 1
            status, count = cuda.cuOccupancyMaxActiveClusters(function, config)
            found[size] = 0 if int(status) else int(count)
    return found
