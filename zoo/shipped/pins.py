"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "95b691a7acb9f6e424c13d310380c6e6ca644f4da69c47886ea401df2e38952a"
