"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d219d1363d70c90db9ca398b3f38f8474c7747b30b6458fb06383262a3afc6f6"
