"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "72f98cefc0333ca504bc4ee23a609523d4cc3ed8000cb9f7c748fd45c44febd8"
