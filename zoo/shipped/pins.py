"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e41d9530964af9e7721efc7b5277f9a89dec5987c1f632028a45e01935ade0ad"
