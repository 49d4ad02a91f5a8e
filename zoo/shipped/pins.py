"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "fcbf79ade522e4eacf38457d92d7d7b8dad958d18a5164112a2c2db8dac39205"
