"""Evidence that anybody may have written: refused as malformed, or printed in a line that is safe for a terminal."""

import json
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

from tests.fuzz.campaign import fuzz
from tests.fuzz.mutations import mutated_bytes, mutated_tokens, number
from zoo.errors import ManifestError
from zoo.shipped.evidence import evidence_of, recorder, summary

VARIANTS = [SimpleNamespace(sha256=digit * 64) for digit in "123"]
_GPU = {"device": "NVIDIA H200", "driver": "580", "date": "2026-01-01", "checks": 20, "error": None}
_SHAPES = {"M=1 K=7168": {"microseconds": 2.5, "of_copy": 0.9, "bytes": 7168}}
RECORDS = {
    VARIANTS[0].sha256: {"gpu": _GPU, "benchmark": {"device": "NVIDIA H200", "shapes": _SHAPES}, "emulator": {"checks": 3, "error": None}},
    VARIANTS[1].sha256: {"gpu": {**_GPU, "error": "q: wrong"}},
}
_STRANGE = ["\x1b[2J", "\n", "\u202e", "\ud800", "\x00", "\x9b", "", "NaN", None, True, [], {}, {"gpu": {}}, 0.5]
_WORDS = ['"gpu"', '"device"', "null", "NaN", "-Infinity", "1e999", '"\\ud800"', '"\\u001b[2J"', "{", "}", "[", "]", ":", ",", '"shapes"']


def _changed(pick: random.Random) -> bytes:
    kind = pick.randrange(3)
    text = json.dumps(RECORDS)
    if kind == 0:
        return mutated_bytes(pick, text.encode(), pick.choice((1, 2, 8)))
    if kind == 1:
        tokens = text.replace(":", " : ").replace(",", " , ").replace("{", " { ").replace("}", " } ").split()
        return " ".join(mutated_tokens(pick, tokens, _WORDS, pick.choice((1, 2, 8)))).encode()
    data = json.loads(text)
    node, place = data, None
    while isinstance(node, (dict, list)) and node and (place is None or pick.random() < 0.8):
        place = node, pick.choice(list(node) if isinstance(node, dict) else range(len(node)))
        node = place[0][place[1]]
    value = number(pick) if pick.random() < 0.3 else pick.choice(_STRANGE)
    if pick.random() < 0.3 and isinstance(place[0], dict):
        place[0][pick.choice(["\x1b]0;x\x07", "\n", place[1]])] = value
    else:
        place[0][place[1]] = value
    return json.dumps(data).encode()


def mutant_evidence_is_refused_or_printable(pick: random.Random) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "evidence.json").write_bytes(_changed(pick))
        try:
            evidence = evidence_of(Path(folder))
        except ManifestError:
            return "refused"
        assert summary(evidence, VARIANTS).isprintable()
        writer = recorder(Path(folder))
        writer.add(VARIANTS[0], "benchmark", {"device": "NVIDIA H200", "shapes": _SHAPES})
        writer.add(VARIANTS[2], "gpu", _GPU)
        writer.write()
        assert summary(evidence_of(Path(folder)), VARIANTS[2:]) == "unpinned: 1 passed on NVIDIA H200"
        return "shown"


def test_mutated_evidence():
    ends = fuzz(mutant_evidence_is_refused_or_printable, 150)
    assert ends["refused"] and ends["shown"]
