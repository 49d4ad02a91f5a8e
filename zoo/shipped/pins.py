"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c29477b6a17967ea5c13b46ba338f99f06d57bbf263a943d8480475f6aee302b"
