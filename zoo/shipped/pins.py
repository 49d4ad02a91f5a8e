"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "68cfbea560a8e098f9e6401d83b9434445d70319665c70ea1151afecfa4740b6"
