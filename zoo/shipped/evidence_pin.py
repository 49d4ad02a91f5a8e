"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "f4011fc68b53244842dbec0da9eb20d71443c8a95c0cf8551998a9ed2a0deb3d"
