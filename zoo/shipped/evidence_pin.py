"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "08d375f68c389a60e3a691b758a5aac11a2dabe83cb33a6282ea3f4605f004f4"
