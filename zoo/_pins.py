"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "b710d2aa54ad1c7670b3799772075f4966c59abb4e3916056c3a29a3a47a43f6"
