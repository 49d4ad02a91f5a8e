"""Layers on zoo's kernels: docs/layers.md."""
