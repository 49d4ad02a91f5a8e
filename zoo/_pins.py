"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2e386cac8a5c394a684b7f8a1eecefc7a4ed0e6ea8979804c9e126ce1d8210fd"
