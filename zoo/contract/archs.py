"""What people call an arch: its family or a chip of it. Manifests, files and kernels know archs as the compiler spells them."""

from __future__ import annotations

from collections.abc import Collection

FAMILIES = {"sm_90a": "Hopper", "sm_100f": "Blackwell"}
CHIPS = {"sm_90a": ("h100", "h200"), "sm_100f": ("b200", "b300")}

_ARCHS = {word: arch for arch, chips in CHIPS.items() for word in (FAMILIES[arch].lower(), *chips)}


def arch_of(written: str) -> str:
    """`sm_90a` for `hopper`, `h100` and `H200`; any other text as it is."""
    return _ARCHS.get(str.lower(written), written) if issubclass(type(written), str) else written


def words_for(archs: Collection[str]) -> list[str]:
    """All that these archs may be called."""
    return [*archs, *(word for word, arch in _ARCHS.items() if arch in archs)]


def family_of(arch: str) -> str:
    """`Hopper` for `sm_90a`; an arch without a family's name as it is."""
    return FAMILIES.get(arch, arch)


def all_of(archs: Collection[str]) -> str:
    """`there are sm_90a (hopper, h100, h200) and sm_100f (blackwell, b200, b300)`."""
    named = [f"{arch} ({', '.join((family_of(arch).lower(), *CHIPS[arch]))})" if arch in CHIPS else arch for arch in dict.fromkeys(archs)]
    return f"there are {' and '.join(filter(None, (', '.join(named[:-1]), *named[-1:])))}"
