"""The training comparison of tools/lab/language_model, at tiny sizes: what would make its curves lie."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tools.lab.language_model import __main__ as command  # noqa: E402
from tools.lab.language_model.model import PRECISIONS, Bf16Experts, Model, Sizes  # noqa: E402
from tools.lab.language_model.text import Batches, files, joined  # noqa: E402
from tools.lab.language_model.training import BLOCK, Plan, Trainer  # noqa: E402

SIZES = Sizes(layers=1, width=32, heads=2, experts=4, inner=128, window=16)
PLAN = Plan(steps=8, batch=2, validation_batches=2)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny products only wait for other threads."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.fixture(scope="module")
def text():
    return joined([path.read_bytes() for path in files()[:20]])


def trainer(precision, text, seed=0, plan=PLAN):
    return Trainer(precision, seed, SIZES, plan, text, "cpu")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_run_resumed_from_a_file_has_the_same_losses_and_weights(precision, text, tmp_path):
    whole, again = trainer(precision, text), trainer(precision, text, seed=1)
    whole.block(3)
    whole.save(tmp_path / "middle.pt")
    losses = whole.block(3)
    assert again.block(3) != losses
    again.load(tmp_path / "middle.pt")
    assert again.step == 3 and again.block(3) == losses
    assert all(torch.equal(one, other) for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True))


def test_a_checkpoint_of_another_run_is_refused(text, tmp_path):
    trainer("bf16", text).save(tmp_path / "bf16.pt")
    with pytest.raises(ValueError, match=r"'bf16'.*not of.*'fp8'"):
        trainer("fp8", text).load(tmp_path / "bf16.pt")


def test_both_precisions_begin_with_the_same_weights_and_batches_and_preparing_changes_nothing(text):
    fresh = Model(SIZES, "bf16")
    fresh.begin(3)
    names = [dict(trainer(precision, text, seed=3).model.named_parameters()) for precision in PRECISIONS]
    for name, one in fresh.named_parameters():
        assert torch.equal(one, names[0][name]) and torch.equal(one, names[1][name]), name
    first = [trainer(precision, text, seed=3).block(1)[0] for precision in PRECISIONS]
    assert first[0] != first[1] and first[0] == pytest.approx(first[1], abs=0.01) == pytest.approx(math.log(256), abs=0.2)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_learns_a_text_of_one_letter(precision):
    one_letter = joined([b"z" * 40] * 10)
    found = trainer(precision, one_letter, plan=replace(PLAN, rate=1e-2))
    first, *_, last = found.block(8)
    assert last < 0.7 * first and found.validate() < 0.7 * first


def test_torch_experts_are_the_layer_that_zoo_computes():
    random = torch.Generator().manual_seed(0)
    layer, x = Bf16Experts(4, 64, 32), torch.randn(24, 64, generator=random)
    with torch.no_grad():
        for one in layer.parameters():
            one.normal_(0, 0.2, generator=random)
    ids = torch.rand(24, 3, generator=random).argsort(1)[:, :2]  # no token for expert 3
    weights = torch.rand(24, 2, generator=random)
    x.requires_grad_()
    given = (x, *layer.parameters())
    found = layer(x, ids, weights)
    wanted = 0
    for j in range(2):
        gate, up = torch.einsum("tk,tnk->tn", x, layer.gate_up.weight[ids[:, j]]).chunk(2, dim=1)
        wanted = wanted + weights[:, j, None] * torch.einsum(
            "ti,tki->tk", torch.nn.functional.silu(gate) * up, layer.down.weight[ids[:, j]]
        )
    assert (found - wanted).norm() < 0.01 * wanted.norm()
    dy = torch.randn(24, 64, generator=random)
    for one, other in zip(torch.autograd.grad(found, given, dy.bfloat16()), torch.autograd.grad(wanted, given, dy), strict=True):
        assert (one - other).norm() < 0.01 * other.norm()


def test_no_byte_for_validation_is_trained_on_and_none_is_lost():
    sources = [bytes([place]) * (place + 1) for place in range(25)]
    found = joined(sources)
    assert set(found.validation.tolist()) == {9, 19}
    assert set(found.train.tolist()) == set(range(25)) - {9, 19} and found.bytes == sum(map(len, sources))


def test_the_last_window_ends_with_the_text():
    starts = Batches(torch.zeros(20, dtype=torch.uint8), 200, 16, 0).starts(1)
    assert int(starts.min()) == 0 and int(starts.max()) == 3  # and one byte after the window is predicted


class Untrained:
    """A trainer without a model. Its losses count the steps of all trainers."""

    steps = itertools.count()

    def __init__(self, *given):
        self.step, self.seconds = 0, 1.0

    def block(self, count):
        self.step += count
        return [float(next(self.steps)) for _ in range(count)]

    def validate(self):
        return 1.0

    def save(self, path):
        path.write_text(str(self.step))

    def load(self, path):
        self.step = int(path.read_text())


def arguments(tmp_path, *more):
    return ["--files", "20", "--seeds", "1", "--output", str(tmp_path / "runs.json"), "--steps", str(2 * BLOCK), *more]


def test_a_run_that_the_budget_cuts_says_so_and_is_not_compared(tmp_path, capsys, monkeypatch):
    clock = iter([0.0, *[1.0] * 4, *[100.0] * 10])  # spent after one block
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(command, "Trainer", Untrained)
    assert command.main(arguments(tmp_path, "--budget-seconds", "50")) == 0
    printed = capsys.readouterr().out
    (run,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert run["steps"] == BLOCK and f"CUT by the budget after {BLOCK} of {2 * BLOCK} steps" in printed
    assert "fp8, seed 0: not started" in printed and "fp8 - bf16" not in printed


def test_a_resumed_run_that_differs_is_a_failure(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "Trainer", Untrained)
    assert command.main(arguments(tmp_path, "--precision", "bf16")) == 1
    assert f"resumed at {BLOCK}: {BLOCK} losses DIFFER" in capsys.readouterr().out
