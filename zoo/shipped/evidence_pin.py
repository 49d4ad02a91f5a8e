"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "b34f063665f2b50e7616f37dbac531092f33d0d5a5e9a927385823ef766d3d84"
