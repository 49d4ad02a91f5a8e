"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "7478d1df536e165ab0553be596672e9e3fcefff4269e38708af7aa55d059128f"
