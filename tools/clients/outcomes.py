"""A plugin of pytest that keeps what became of each test of another project, and why."""

from __future__ import annotations

from typing import Any


class Outcomes:
    def __init__(self) -> None:
        self.of: dict[str, tuple[str, str]] = {}  # test, or file that cannot be read: "passed", "failed" or "skipped", and the reason

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped or report.failed:
            self.of[report.nodeid] = (report.outcome, _reason(report))
        elif report.when == "call":
            self.of.setdefault(report.nodeid, ("passed", ""))

    def pytest_collectreport(self, report: Any) -> None:
        if report.skipped or report.failed:
            self.of[report.nodeid] = (report.outcome, _reason(report))


def _reason(report: Any) -> str:
    said = report.longrepr
    if report.skipped:
        return str(said[2] if isinstance(said, tuple) else getattr(report, "wasxfail", said)).removeprefix("Skipped: ")
    crash = getattr(said, "reprcrash", None)
    return str(crash.message if crash is not None else said)


def device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
