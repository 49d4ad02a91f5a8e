"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "13d7a6dae74fb17709b57500e2144259a0e3a4f4b13b2d0f295135db9f436447"
