"""Runs functions in several processes that form a process group: on a GPU each by NCCL, else by gloo, on the CPU or sharing a GPU."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

ON_GLOO = pytest.mark.skipif(
    not torch.distributed.is_available() or sys.platform != "linux", reason="needs torch.distributed with gloo, and fork"
)
Case = Callable[..., Any]


class Ranks:
    """Processes forked from one that has imported torch: importing takes longer than the cases."""

    def __init__(self, size: int, folder: Path, cases: list[tuple[Case, tuple[Any, ...]]], gpus: int = 0):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.torch.nn.experts_over_ranks"])
        self.size, self.cases, self.results = size, cases, context.Queue()
        self.processes = [context.Process(target=_work, args=(rank, size, folder, gpus, cases, self.results)) for rank in range(size)]
        for one in self.processes:
            one.start()

    def outcome(self, seconds: float) -> dict[tuple[int, int], str]:
        """By rank and case: what the case returned or raised, in words. A rank that is not done in time is missing."""
        found: dict[tuple[int, int], str] = {}
        end = time.monotonic() + seconds
        while time.monotonic() < end and (not self.results.empty() or any(one.is_alive() for one in self.processes)):
            while not self.results.empty():
                rank, number, words = self.results.get()
                found[rank, number] = words
            time.sleep(0.02)
        self.hung = [rank for rank, one in enumerate(self.processes) if one.is_alive()]
        for one in self.processes:
            one.kill()
            one.join()
        return found


def _work(rank: int, size: int, folder: Path, gpus: int, cases: list[tuple[Case, tuple[Any, ...]]], results: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if gpus:
        torch.cuda.init()  # by which the cases know
        torch.cuda.set_device(rank % gpus)
    minute = datetime.timedelta(seconds=60)
    torch.distributed.init_process_group(
        "nccl" if gpus >= size else "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size, timeout=minute
    )
    for number, (case, given) in enumerate(cases):
        try:
            words = case(rank, size, *given) or ""
        except Exception as error:
            words = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        results.put((rank, number, words))
    results.close()
    results.join_thread()
    os._exit(0)  # no meeting at the end, which a dead rank would not attend
