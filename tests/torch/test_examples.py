"""The examples in torch run, and their results are as near to float32 as their formats are."""

from __future__ import annotations

import re

import pytest

from tests.examples import DEVICES, needs_hopper, percentages, run_example

pytest.importorskip("torch")


@pytest.mark.parametrize("device", DEVICES)
def test_fp8_linear_layers_have_half_the_bytes_and_the_error_of_eight_bits(device):
    lines = run_example("torch_linear.py", device)
    bf16, fp8 = percentages(lines)
    bytes_in_bf16, bytes_in_fp8 = (int(line.split()[1]) for line in lines[1:])
    assert bf16 < 1 and 2 < fp8 < 8 and 0.5 <= bytes_in_fp8 / bytes_in_bf16 < 0.51


@pytest.mark.parametrize("device", DEVICES)
def test_a_network_trained_in_fp8_learns_as_in_float32_and_is_frozen_as_it_is(device):
    lines = run_example("train_linear.py", device)
    fp8, float32 = ([float(word) for word in line.split()[1:]] for line in lines[1:3])
    assert len(fp8) == 10 and fp8[-1] < 0.5 * fp8[0] and fp8 != float32
    assert fp8 == pytest.approx(float32, rel=0.05)
    assert percentages(lines)[-1] == 0


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_served_with_four_bit_weights_is_off_by_what_its_fp8_tokens_lose(device):
    if device == "gpu":
        needs_hopper()
    errors = percentages(run_example("moe_serving.py", device))
    assert len(errors) == 3 and all(2 < error < 6 for error in errors)


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_trained_in_fp8_learns_as_in_float32(device):
    fp8, float32 = ([float(word) for word in line.split()[1:]] for line in run_example("moe_training.py", device)[1:])
    assert len(fp8) == 6 and fp8[-1] < 0.5 * fp8[0] and fp8 != float32
    assert fp8 == pytest.approx(float32, rel=0.02)


@pytest.fixture
def in_two_processes(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return lambda name: run_example(name, "host", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_experts_spread_over_two_processes_are_as_exact_as_in_one_and_learn(in_two_processes):
    served, trained = in_two_processes("expert_parallel.py")
    assert 0.05 < float(re.search(r"error ([\d.]+)%", served)[1]) / 100 < 0.08 and "2 ranks serve 4 experts each" in served
    losses = [float(word) for word in trained.split()[1:]]
    assert len(losses) == 6 and losses == sorted(losses, reverse=True)


def test_experts_spread_over_two_processes_send_less_than_in_bf16(in_two_processes):
    lines = in_two_processes("../tools/exchange_times.py")
    rows = [line.split() for line in lines[2:]]
    assert [row[:4] for row in rows] == [["serve", "64", "1", "1"], ["serve", "64", "2", "2"], ["train", "64", "1", "2"]]
    assert all(float(row[4]) > 0 and float(row[6]) > 0 and float(row[8]) < 1 for row in rows)
    assert rows[0][7] == "-" or float(rows[0][6]) < 0.85 * float(rows[0][7])
