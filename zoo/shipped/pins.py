"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "35c67636b679eed832e4fbf24d6310d6a084b7487541d5f023cd785d07baab91"
