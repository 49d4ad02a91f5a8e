"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "4f416d41bb9380ac24fc804d524711e388dab802a03623b0aa5053461d53ff46"
