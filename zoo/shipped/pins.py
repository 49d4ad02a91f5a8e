"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "4524358ad79aec7e875a6f3275a2e6077db3fc4ccbff8b8356596a8b514816f8"
