"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "f9529bc16e0c0af7638de7adf0b6922b74007442918bf16eedf35095fd7fee37"
