"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "59c63719a0474a3d72f3ee25a0fecb94aab7909fdb2c8f012bb57cf893533893"
