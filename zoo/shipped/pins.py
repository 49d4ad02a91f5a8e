"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "885e5fbea74cccd689eaa7ccb7e5f3a5e6b9ba91ea87fd96bc33496990f028fd"
