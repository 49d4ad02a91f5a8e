"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "9ea30db744c8f57404ff114d5d8ea9fd0be701ec719d346fe507e101145d35fa"
