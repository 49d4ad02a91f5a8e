"""The driver's encoder of tensor maps is asked for by the version that had it first."""

from types import SimpleNamespace

import pytest

from zoo.runtime import driver, tensor_map_encoder


class AskedForError(Exception):
    pass


def test_the_encoder_is_that_of_cuda_12_whatever_the_driver_has_since(monkeypatch):
    def ask(*asked):
        raise AskedForError(asked)

    monkeypatch.setattr(driver, "bindings", lambda: SimpleNamespace(cuGetProcAddress=ask))
    with pytest.raises(AskedForError) as refusal:
        tensor_map_encoder._function.__wrapped__(b"cuTensorMapEncodeTiled")
    assert refusal.value.args[0] == (b"cuTensorMapEncodeTiled", 12000, 0)
