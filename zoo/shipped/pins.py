"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "b0c80738ec828c2a949acbf175700203404f10da8397786adb00229baf9b0bf5"
