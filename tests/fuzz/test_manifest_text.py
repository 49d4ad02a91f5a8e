"""Manifests that anybody may have written: ManifestError, or kernels that resolve, verify and print."""

import json
import random
import tempfile
from pathlib import Path

from tests.fuzz.campaign import fuzz
from tests.fuzz.mutations import mutated_bytes, mutated_tokens, number
from zoo.contract.manifest import Manifest
from zoo.errors import ManifestError
from zoo.shipped.integrity import verify_integrity

FOLDER = Path(__file__).resolve().parents[1] / "zoo_cubins"
_WHOLE = json.loads((FOLDER / "manifest.json").read_text())
# One kernel at a time: most of a larger manifest would be read for nothing.
ONE_EACH = [json.dumps({**_WHOLE, "ptx": None, "kernels": {name: entry}}) for name, entry in _WHOLE["kernels"].items()]
_STRANGE = [None, True, -1, 0, 0.5, "", "1 +", "nothing", "M // 0", "M * M * M * M", "1 if M else", "sms", "../../etc", "\x1b[2J", "$(id)", [], {},
            [[]], "(" * 900, "9" * 400, "\ud800", "sm_90a", "u8", "x" * 3000]  # fmt: skip
_WORDS = ["{", "}", "[", "]", ":", ",", "null", "true", "NaN", "-Infinity", "1e999", '""', '"\\ud800"', '"kernels"', '"M"', "-1", "0.5"]


def _changed(pick: random.Random) -> bytes:
    text, kind = pick.choice(ONE_EACH), pick.randrange(6)
    if kind == 0:
        return mutated_bytes(pick, text.encode(), pick.choice((1, 2, 8)))
    if kind == 1:
        tokens = json.dumps(json.loads(text), separators=(" , ", " : ")).replace("{", "{ ").split(" ")
        return " ".join(mutated_tokens(pick, tokens, _WORDS, pick.choice((1, 2, 8)))).encode()
    data = json.loads(text)
    for _ in range(pick.choice((1, 1, 2, 4))):
        node, place = data, None
        while isinstance(node, (dict, list)) and node and (place is None or pick.random() < 0.88):
            place = node, pick.choice(list(node) if isinstance(node, dict) else range(len(node)))
            node = place[0][place[1]]
        action = pick.randrange(4)
        if action == 0:
            del place[0][place[1]]
        elif action == 1 and isinstance(place[0], list):
            place[0].append(place[0][place[1]])
        elif action == 2:
            place[0][place[1]] = number(pick)
        else:
            place[0][place[1]] = pick.choice(_STRANGE)
    return json.dumps(data).encode()


def a_mutant_manifest_is_refused_or_means_something(pick: random.Random) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path, said = Path(folder) / "manifest.json", "no kernel"
        path.write_bytes(_changed(pick))
        try:
            manifest = Manifest(path)
            kernels = [manifest.kernel(name) for name in manifest.names]
        except ManifestError as error:
            said, kernels = str(error), []
    if not kernels:
        assert said.isprintable() and len(said) < 10_000, said
        return "refused"
    for kernel in kernels:
        assert kernel is not None and (kernel.name + kernel.summary).isprintable()
    problems = [result.problem for result in verify_integrity(FOLDER, manifest) if result.problem and result.kernel]
    assert all(problem.isprintable() for problem in problems)
    return "read, cubins refused" if problems else "read"


def test_mutated_manifests():
    ends = fuzz(a_mutant_manifest_is_refused_or_means_something, 150)
    assert ends["refused"]
