"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "0b81f2590893b2cdfee418e0663b3724d8a8f408de2cd56314b79ceecb8772d7"
