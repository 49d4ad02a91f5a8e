"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "b9b2c0ddffbd412f430e1ef1319ab658a0685e0f721f491019b82cdd5556af32"
