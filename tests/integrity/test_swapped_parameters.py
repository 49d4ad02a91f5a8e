"""Two parameters of the same size in each other's place: sizes and offsets agree with the cubin, so only names can tell."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from zoo.contract.reading import parse_kernel
from zoo.contract.schema import block_layout
from zoo.errors import ManifestError

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"shipped": ROOT / "cubins", "tests": ROOT / "tests/zoo_cubins"}


def kernels(folder):
    return json.loads((folder / "manifest.json").read_text())["kernels"]


def swapped(parameters, at):
    """The list with two neighbours swapped, laid out as the struct that it then is."""
    order = [*parameters[:at], parameters[at + 1], parameters[at], *parameters[at + 2 :]]
    offsets, size = block_layout(one["kind"] for one in order)
    return [one | {"offset": offset} for one, offset in zip(order, offsets, strict=True)], size


def unrefused(name, entry, seen):
    """The swaps that a reader takes, or refuses without the names of the parameters. A list of names and kinds that was `seen` in another
    launch has its signature, by which a swap is refused."""
    accepted = []
    for launch, rule in entry["launches"].items():
        if (listed := tuple((one["name"], one["kind"]) for one in rule["parameters"])) in seen:
            continue
        seen.add(listed)
        variant = next(one for one in entry["variants"] if one["launch"] == launch)
        for at in range(len(rule["parameters"]) - 1):
            parameters, size = swapped(rule["parameters"], at)
            other = {**entry, "launches": {launch: {**rule, "parameters": parameters, "parameter_bytes": size}}, "variants": [variant]}
            names = ", ".join(one["name"] for one in parameters)
            try:
                parse_kernel(name, other)
                said = "no refusal"
            except ManifestError as error:
                said = str(error)
            if names not in said:
                accepted.append((launch, parameters[at]["name"], parameters[at + 1]["name"], said))
    return accepted


@pytest.mark.parametrize("which", FOLDERS)
def test_every_swap_of_two_neighbours_is_refused_by_name(which):
    seen = set()
    assert {name: found for name, entry in kernels(FOLDERS[which]).items() if (found := unrefused(name, entry, seen))} == {}


def test_the_swapped_parameters_include_neighbours_of_one_size():
    """Otherwise sizes alone would refuse every swap."""
    for folder in FOLDERS.values():
        launches = [rule["parameters"] for entry in kernels(folder).values() for rule in entry["launches"].values()]
        assert any(one["kind"] == two["kind"] for parameters in launches for one, two in pairwise(parameters))
