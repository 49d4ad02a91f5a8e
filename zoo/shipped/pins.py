"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "87f8bbc8f3f24236601c97e2215d9792e0455586aea13c6fa52d75811b8c73ea"
