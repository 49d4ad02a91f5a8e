"""zoo.torch. Skipped where torch is missing; .ci/run installs the oldest that works and the newest, and runs nearly all of it with each."""

import pytest

pytest.importorskip("torch", reason="torch is not installed; .ci/run runs these tests with the oldest that works and with the newest")
