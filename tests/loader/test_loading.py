"""What a device is asked for when a cubin is loaded and a plan started, call by call; the driver is a stand-in, the cubins are those of tests."""

import contextlib
import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from zoo.catalog import Zoo
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.expressions import Expression
from zoo.contract.resolve import resolve
from zoo.errors import ArchitectureError, CaptureError, DriverError, IntegrityError, StreamError, UnknownKernelError, VariantError
from zoo.packaged import packaged
from zoo.runtime import driver, plan, streams
from zoo.runtime.library import Library
from zoo.runtime.plan import Block, Plan
from zoo.shipped.verified import read_verified

PROOFS = Zoo(Path(__file__).resolve().parents[1] / "zoo_cubins")
NAME = "quantize.mxfp8.rows"


class Struct(SimpleNamespace):
    """A structure whose members are there once they are named."""

    def __getattr__(self, name):
        made = Struct()
        setattr(self, name, made)
        return made


class Names:
    def __getattr__(self, name):
        return name


class Driver:
    """Does as it is told and keeps what it was asked; `fails` is the status of the next launches."""

    CUfunction_attribute = CUlaunchAttributeID = CUstreamCaptureMode = Names()
    CUlaunchConfig = CUlaunchAttribute = Struct
    CUstream = staticmethod(lambda handle: ("stream", handle))
    CUresult = staticmethod(int)

    def __init__(self):
        self.asked, self.fails, self.capturing = [], [], 0

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.asked.append((name, *arguments))
            return 0, f"{name} {sum(one[0] == name for one in self.asked)}"

        return call

    def cuStreamIsCapturing(self, stream):
        self.asked.append(("cuStreamIsCapturing", stream))
        return 0, self.capturing

    def cuLaunchKernelEx(self, config, function, parameters, extra):
        self.asked.append(("cuLaunchKernelEx", config, function, parameters, extra))
        return (self.fails.pop(0) if self.fails else 0,)

    def of(self, name):
        return [arguments for one, *arguments in self.asked if one == name]


class Device:
    def __init__(self, ordinal=0, shared_memory=232448, capability=(9, 0), adopted=False):
        self.ordinal, self.shared_memory, self.capability, self.name = ordinal, shared_memory, capability, f"device {ordinal}"
        self.multiprocessors, self.adopted, self.entered, self.asked = 132, adopted, 0, 0

    @contextlib.contextmanager
    def current(self):
        self.entered += 1
        yield

    def adopt_thread(self):
        self.asked += 1
        return self.adopted


@pytest.fixture
def used(monkeypatch):
    made = Driver()
    monkeypatch.setattr(driver, "bindings", lambda: made)
    monkeypatch.setattr(driver, "relaxed_capture", contextlib.nullcontext)
    return made


def variant_with(variant, **changes):
    """The same variant that says something else of itself."""
    return SimpleNamespace(**{**{name: getattr(variant, name) for name in dir(variant) if not name.startswith("_")}, **changes})


VARIANT = PROOFS.kernel(PROOFS.manifest.names[0]).variants[0]


def cluster(*extents):
    return SimpleNamespace(cluster=tuple(map(Expression, extents)), alone=Expression("0"))


@pytest.mark.parametrize(
    ("says", "of_device", "asked"),
    [
        (dict(shared=0), 232448, None),
        (dict(shared=16, static_shared=0), 48 * 1024, None),
        (dict(shared=16, static_shared=0), 48 * 1024 + 1, 48 * 1024 + 1),
        (dict(shared=16, static_shared=1000), 232448, 231448),
        (dict(shared=16, static_shared=1024), 49 * 1024, None),
    ],
)
def test_all_the_memory_that_a_device_has_is_asked_for_where_it_is_more_than_usual(used, says, of_device, asked):
    variant = variant_with(VARIANT, **says, launch=cluster("1", "1", "1"))
    Library(PROOFS.directory).function(variant, Device(shared_memory=of_device))
    attribute = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert used.of("cuFuncSetAttribute") == ([] if asked is None else [["cuKernelGetFunction 1", attribute, asked]])


def test_a_block_that_may_be_alone_is_given_all_memory_though_it_uses_none(used):
    launch = SimpleNamespace(cluster=cluster("1", "1", "1").cluster, alone=Expression("M < 9"))
    Library(PROOFS.directory).function(variant_with(VARIANT, shared=0, static_shared=0, launch=launch), Device(shared_memory=232448))
    assert used.of("cuFuncSetAttribute") == [["cuKernelGetFunction 1", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 232448]]


@pytest.mark.parametrize(("extents", "allowed"), [(("1", "1", "1"), False), (("2", "1", "1"), True), (("1", "1", "S"), True)])
def test_clusters_of_any_size_are_allowed_where_there_may_be_some(used, extents, allowed):
    Library(PROOFS.directory).function(variant_with(VARIANT, shared=0, launch=cluster(*extents)), Device())
    attribute = "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"
    assert used.of("cuFuncSetAttribute") == ([["cuKernelGetFunction 1", attribute, 1]] if allowed else [])


def test_bytes_are_loaded_once_and_functions_once_a_device(used):
    library, one, other = Library(PROOFS.directory), Device(0), Device(1)
    assert not library.is_loaded(VARIANT, one)
    first = library.function(VARIANT, one)
    assert library.function(VARIANT, one) is first == "cuKernelGetFunction 1" and library.is_loaded(VARIANT, one)
    assert not library.is_loaded(VARIANT, other) and library.function(VARIANT, other) == "cuKernelGetFunction 2"
    data = (PROOFS.directory / VARIANT.file).read_bytes()
    assert used.of("cuLibraryLoadData") == [[data, [], [], 0, [], [], 0]]
    assert used.of("cuLibraryGetKernel") == [["cuLibraryLoadData 1", VARIANT.symbol.encode()]] * 2
    assert used.of("cuFuncLoad") == [["cuKernelGetFunction 1"], ["cuKernelGetFunction 2"]]
    assert one.entered and other.entered


def test_what_another_thread_loaded_meanwhile_is_not_loaded_again(used):
    library = Library(PROOFS.directory)

    class Lock:
        def __enter__(self):
            library._functions[VARIANT.sha256, 0] = "by another"

        def __exit__(self, *_):
            pass

    library._lock = Lock()
    assert library.function(VARIANT, Device()) == "by another" and used.of("cuLibraryLoadData") == []


def test_a_plan_is_of_the_loaded_function_in_a_thread_that_has_the_device(used, monkeypatch):
    monkeypatch.setattr(driver, "Device", Device)
    zoo, device, launch = Zoo(packaged.directory), Device(), launch_at(*AT)
    device.adopted = True
    made = zoo.plan_of(launch, device, dict.fromkeys(SHAPES), lambda: 4, 3)
    made()
    ((config, function, *_),) = used.of("cuLaunchKernelEx")
    assert function == zoo.library.function(launch.variant, device) == "cuKernelGetFunction 1" and config.hStream == ("stream", 4)
    assert made.launch is launch and made.device is device and device.asked == 1 and used.of("cuStreamIsCapturing") == [[3]]


def test_nothing_is_loaded_for_a_stream_that_is_captured(used):
    library = Library(PROOFS.directory)
    used.capturing = 1
    with pytest.raises(CaptureError, match="is not loaded on device 3, and its stream is being captured"):
        library.function(VARIANT, Device(3), 7)
    assert used.asked == [("cuStreamIsCapturing", 7)] and not library.is_loaded(VARIANT, Device(3))
    assert library.function(VARIANT, Device(3)) and len(used.of("cuStreamIsCapturing")) == 1
    assert library.function(VARIANT, Device(3), 7)  # what is loaded may be captured
    used.capturing = 0
    assert library.function(VARIANT, Device(4), 0) and used.of("cuStreamIsCapturing") == [[7], [0]]


def test_bytes_that_are_not_the_manifests_are_refused(tmp_path):
    data = (PROOFS.directory / VARIANT.file).read_bytes()
    assert read_verified(PROOFS.directory, VARIANT) == data
    path = tmp_path / VARIANT.file
    with pytest.raises(IntegrityError, match="cannot read the cubin"):
        read_verified(tmp_path, VARIANT)
    path.parent.mkdir()
    for wrong, words in ((data[:-1], "has [0-9]+ bytes, the manifest says"), (data[:-1] + bytes([data[-1] ^ 1]), "was altered")):
        path.write_bytes(wrong)
        with pytest.raises(IntegrityError, match=words):
            read_verified(tmp_path, VARIANT)


@pytest.fixture
def zoo_of_one(used, monkeypatch):
    """A Zoo of the packaged kernels, whose device 2 is a stand-in."""
    made = Zoo(packaged.directory)
    devices = {2: Device(2), 5: Device(5, capability=(8, 0))}
    monkeypatch.setattr(driver, "device", devices.__getitem__)
    return made


def test_what_is_loaded_is_every_variant_that_runs_there_or_the_one_that_is_named(zoo_of_one):
    runs = [one for one in packaged.kernel(NAME).variants if one.arch == "sm_90a"]
    assert zoo_of_one.load(NAME, device=2) == len(runs) > 1
    assert all(zoo_of_one.library.is_loaded(one, Device(2)) for one in runs)
    assert not any(zoo_of_one.library.is_loaded(one, Device(2)) for one in packaged.kernel(NAME).variants if one.arch != "sm_90a")
    other = Zoo(packaged.directory)
    named = [one for one in runs if one.name == runs[-1].name]
    assert other.load(NAME, device=2, variant=runs[-1].name) == len(named) < len(runs)
    assert [other.library.is_loaded(one, Device(2)) for one in runs] == [one in named for one in runs]


def test_what_cannot_be_loaded_is_refused_with_what_could(zoo_of_one, used):
    with pytest.raises(UnknownKernelError, match=r"no kernel matches 'quantise.*'; "):
        zoo_of_one.load("quantise.*", device=2)
    with pytest.raises(VariantError, match=f"{NAME}: no variant 'none' for device 2; "):
        zoo_of_one.load(NAME, device=2, variant="none")
    with pytest.raises(ArchitectureError, match=r"no cubin for compute capability 8\.0; the zoo ships sm_100f, sm_90a"):
        zoo_of_one.load(NAME, device=5)
    assert used.of("cuFuncLoad") == []


SHAPES = {"x": ((256, 512), "f16"), "q": ((256, 512), "e4m3"), "scales": ((256, 16), "ue8m0")}


def launch_at(*addresses, name=NAME, shapes=None, **chosen):
    shapes = shapes or SHAPES
    arrays = {
        one: Array(at, dtype, shape, contiguous_strides(shape)) for at, (one, (shape, dtype)) in zip(addresses, shapes.items(), strict=True)
    }
    return resolve(packaged.kernel(name), arrays, (9, 0), 132, **chosen)


DENSE = {
    "a": ((8, 1024), "e4m3"), "a_scale": ((8, 8), "f32"), "b": ((256, 1024), "e4m3"), "b_scale": ((2, 8), "f32"), "d": ((8, 256), "bf16"),
}  # fmt: skip
AT = (1 << 30, 2 << 30, 3 << 30)


def read(address, size):
    return ctypes.string_at(address, size)


@pytest.mark.parametrize("order", [tuple(SHAPES), ("scales", "x", "q")])
def test_parameters_lie_aligned_and_those_of_arrays_where_a_move_writes(order):
    launch = launch_at(*AT)
    block = Block(launch, order)
    parameters = launch.variant.launch.parameters
    assert block.address % 64 == 0
    assert list(block.pointers) == [AT[list(SHAPES).index(name)] for name in order]
    cells = (ctypes.c_void_p * len(parameters)).from_address(block.parameters)
    said = launch.logical_block()
    for cell, parameter in zip(cells, parameters, strict=True):
        assert read(cell, parameter.size) == said[parameter.offset : parameter.offset + parameter.size]
    for place in range(len(order)):
        block.pointers[place] = 7 + place
    moved = {
        name: cells[index] for index, parameter in enumerate(parameters) for offset, name in launch.pointers if offset == parameter.offset
    }
    assert {name: int.from_bytes(read(cell, 8), "little") for name, cell in moved.items()} == {
        name: 7 + at for at, name in enumerate(order)
    }


@pytest.fixture
def made(used):
    launch = launch_at(*AT)
    return Plan(launch, Device(), "function", dict.fromkeys(SHAPES))


def test_a_plan_is_configured_once_a_stream_and_for_so_many(made, used, monkeypatch):
    monkeypatch.setattr(plan, "_MOST_STREAMS", 2)
    for stream in (3, 3, 4):
        made(stream)
    configs = [config for config, *_ in used.of("cuLaunchKernelEx")]
    assert configs[0] is configs[1] is not configs[2] and [one.hStream for one in configs] == [("stream", 3)] * 2 + [("stream", 4)]
    launch = made.launch
    assert (configs[0].gridDimX, configs[0].gridDimY, configs[0].gridDimZ) == launch.grid
    assert (configs[0].blockDimX, configs[0].blockDimY, configs[0].blockDimZ) == (launch.threads, 1, 1)
    assert configs[0].sharedMemBytes == launch.shared
    assert all(rest == ["function", made._block.parameters, 0] for _, *rest in used.of("cuLaunchKernelEx"))
    made(SimpleNamespace(__cuda_stream__=lambda: (0, 4)))
    assert used.of("cuLaunchKernelEx")[-1][0] is configs[2]
    made(5)  # a third: those before are forgotten
    made(5)
    made(3)
    latest = [config for config, *_ in used.of("cuLaunchKernelEx")][-3:]
    assert latest[0] is latest[1] and latest[2] is not configs[0] and len(made._configs) == 2
    with pytest.raises(StreamError, match="belong to no framework with a current stream; pass stream="):
        made()


def test_attributes_are_those_of_clusters_and_programmatic_starts(used):
    seen = set()
    for variant in {
        one.name
        for one in packaged.kernel("gemm.fp8b128.dense").variants
        if one.arch == "sm_90a" and not one.name.startswith("f32") and one.name != "t64"  # which takes no 8 rows
    }:
        launch = launch_at(*(place << 30 for place in range(1, 6)), name="gemm.fp8b128.dense", shapes=DENSE, variant=variant)
        started = Plan.__new__(Plan)
        started.launch, started._configs = launch, {}
        config = started._configure(1)
        attributes = getattr(config, "attrs") if "attrs" in vars(config) else []  # noqa: B009
        found = {one.id: one.value for one in attributes}
        clustered, programmatic = launch.cluster != (1, 1, 1), launch.variant.launch.programmatic
        assert len(found) == clustered + programmatic == (config.numAttrs if attributes else 0)
        if clustered:
            dims = found["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"].clusterDim
            assert (dims.x, dims.y, dims.z) == launch.cluster
        if programmatic:
            assert found["CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"].programmaticStreamSerializationAllowed == 1
        seen.add(clustered)
    assert seen == {True, False}


def test_a_launch_that_fails_is_tried_again_with_its_device_and_once(made, used):
    made.device.adopted = True
    used.fails = [201]
    made(1)
    assert len(used.of("cuLaunchKernelEx")) == 2 and made.device.entered == 0
    made.device.adopted = False
    used.fails = [201]
    made(1)
    assert len(used.of("cuLaunchKernelEx")) == 4 and made.device.entered == 1
    one = used.of("cuLaunchKernelEx")
    assert all(again == one[0] for again in one)
    used.fails = [700, 700]
    with pytest.raises(DriverError, match=f"launching {made.launch.variant.symbol}"):
        made(1)


def test_a_plan_of_no_rows_enqueues_nothing(used):
    shapes = {name: ((0, *shape[1:]), dtype) for name, (shape, dtype) in SHAPES.items()}
    Plan(launch_at(*AT, shapes=shapes), Device(), "function", dict.fromkeys(SHAPES))(1)
    assert used.of("cuLaunchKernelEx") == []


def test_a_plan_moves_to_addresses_where_its_arrays_may_lie_and_to_no_others(made):
    assert made.movable and made.form is None
    assert made.move(list(AT)) and list(made._pointers) == list(AT)
    further = [at + 4096 for at in AT]
    assert made.move(further) and list(made._pointers) == further and made.move(further)
    assert not made.move([AT[0] + 1, *AT[1:]]) and list(made._pointers) == further  # not aligned
    assert not made.move([AT[0], AT[0], AT[2]]) and list(made._pointers) == further  # one over another


def test_a_move_that_fails_half_way_is_not_taken_for_one_that_was_made(used, monkeypatch):
    """Of tensor maps, which are encoded where they lie in the block, for the addresses of their arrays."""
    encoded, moved, fails = {}, [], []

    def replace(place, address):
        if fails:
            raise fails.pop()
        moved.append((place, address))

    monkeypatch.setattr(plan, "encode", lambda tensor_map, place: encoded.update({place: tensor_map}))
    monkeypatch.setattr(plan, "replace_address", replace)
    at = [place << 30 for place in range(1, 6)]
    launch = launch_at(*at, name="gemm.fp8b128.dense", shapes=DENSE)
    made = Plan(launch, Device(), "function", dict.fromkeys(DENSE))
    assert encoded == {made._block.address + offset: tensor_map for offset, _, tensor_map in launch.tensor_maps} and encoded
    owners = {made._block.address + offset: list(DENSE).index(name) for offset, name, _ in launch.tensor_maps}
    assert made.move(at) and dict(moved) == {place: at[owner] for place, owner in owners.items()}
    further = [one + 4096 for one in at]
    fails.append(DriverError("moving a tensor map", 1))
    with pytest.raises(DriverError):
        made.move(further)
    moved.clear()
    assert made.move(at) and dict(moved) == {place: at[owner] for place, owner in owners.items()}
    moved.clear()
    assert made.move(at) and moved == []  # nothing to do


def test_a_stream_of_the_arrays_owner_is_asked_for_each_time(used):
    handles = iter((8, 9))
    launched = Plan(launch_at(*AT), Device(), "function", dict.fromkeys(SHAPES), lambda: next(handles))
    launched()
    launched.run()
    assert [config.hStream for config, *_ in used.of("cuLaunchKernelEx")] == [("stream", 8), ("stream", 9)]
    assert streams.none() is None
