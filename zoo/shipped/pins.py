"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "6c66bcb19ddd22d342b89b172001a8831359dac660ac0a3821dc7d64ed942fea"
