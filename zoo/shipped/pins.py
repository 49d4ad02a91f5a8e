"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "19071c3714919659ff4ea2fb5f7e9a5a459bc7dda0b17dddd385864e7d58dc76"
