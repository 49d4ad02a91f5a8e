"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "6b16f428d96120d2aba114ed8e811ac05cf01cefe5c21fa386de70e50dc1fd8b"
