"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "9eec5514beb32c6b853b5585ff2bc3c0c23ab91ca32813bc1a4e266f413a87f8"
