"""torch's own tensors that are more, or less, than numbers in memory: refused in a sentence, without a GPU."""

from __future__ import annotations

import warnings

import pytest

from zoo.errors import ArgumentError
from zoo.runtime.arrays import Call, view

torch = pytest.importorskip("torch")


def refusal(tensor: object) -> str:
    with pytest.raises(ArgumentError) as caught:
        Call.read({"x": tensor})
    return str(caught.value)


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(4, 4, device="cuda")


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


def freed():
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(0)
    return tensor


def jagged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def masked():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.masked.masked_tensor(torch.ones(4), torch.ones(4).bool())


class Overridden(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        raise RuntimeError("of torch's functions none works here")


class Mine(torch.Tensor):
    pass


def wrapped(transform):
    """What a function sees inside one of torch.func's transforms."""
    seen = []

    def function(x):
        seen.append(refusal(x))
        return x.sum()

    transform(function)
    return seen[0]


TRANSFORMS = {
    "vmap": lambda function: torch.func.vmap(function)(torch.ones(3, 4)),
    "grad": lambda function: torch.func.grad(function)(torch.ones(4)),
    "jvp": lambda function: torch.func.jvp(function, (torch.ones(4),), (torch.ones(4),)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_a_transform_wraps_is_refused(transform):
    assert wrapped(TRANSFORMS[transform]).startswith("x: a Tensor that cannot be read: RuntimeError(")


def test_a_negated_tensor_is_refused_whether_it_is_contiguous_or_not():
    numbers = torch.ones(4, 1, dtype=torch.complex64)
    for honest, negated in ((numbers.imag, numbers.conj().imag), (torch.ones(4), torch._neg_view(torch.ones(4)))):
        assert honest.stride() == negated.stride() and honest.shape == negated.shape
        assert Call.read({"x": honest}).values["x"].dtype == "f32"
        assert refusal(negated) == "x: the tensor is negated only when it is read; pass x.resolve_neg()"


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


MADE = {
    "sparse": (lambda: torch.eye(4).to_sparse(), "x: a Tensor that cannot be read"),
    "sparse by rows": (lambda: torch.eye(4).to_sparse_csr(), "x: a Tensor that cannot be read"),
    "nested": (nested, "x: a Tensor that cannot be read"),
    "mkldnn": (lambda: torch.ones(4, 4).to_mkldnn(), "x: a Tensor that cannot be read"),
    "a complex number's part": (lambda: torch.ones(1, dtype=torch.complex64).conj().imag, "negated"),
    "meta": (lambda: torch.empty(4, 4, device="meta"), "without memory"),
    "fake": (fake, "without memory"),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(4)), "without memory"),
    "freed": (freed, "without memory"),
    "quantised": (quantised, "more than the numbers in memory"),
    "complex": (lambda: torch.ones(4, dtype=torch.complex64), "more than the numbers in memory"),
    "conjugated": (lambda: torch.ones(4, dtype=torch.complex64).conj(), "more than the numbers in memory"),
    "jagged": (jagged, "the shape of a NestedTensor|no memory that a kernel could read|the strides of a NestedTensor"),
    "masked": (masked, "without memory"),
    "uninitialised parameter": (lambda: torch.nn.UninitializedParameter(), "no memory that a kernel could read"),
    "negated subclass": (lambda: torch.ones(4, dtype=torch.complex64).conj().imag.as_subclass(Mine), "negated only when it is read"),
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_a_tensor_that_is_not_just_memory_is_refused(kind):
    make, words = MADE[kind]
    sentence = refusal(make())
    assert any(one in sentence for one in words.split("|")), sentence


def test_a_view_does_not_hide_what_a_tensor_owes():
    with pytest.raises(ArgumentError, match="negated"):
        view(torch._neg_view(torch.ones(4)), "i32")
    for tensor, dtype in ((torch.ones(4, dtype=torch.complex64).conj(), "i64"), (quantised(), "u8")):
        with pytest.raises(ArgumentError, match="more than the numbers in memory"):
            view(tensor, dtype)


def test_a_subclass_lies_where_its_memory_does_whatever_it_makes_of_torchs_functions():
    tensor = torch.ones(4, 6, dtype=torch.bfloat16)[:, ::2]
    plain = Call.read({"x": tensor}).values["x"]
    for cls in (Mine, Overridden, torch.nn.Parameter):
        one = cls(tensor) if cls is torch.nn.Parameter else tensor.as_subclass(cls)
        assert Call.read({"x": one}).values["x"] == plain
