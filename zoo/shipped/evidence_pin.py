"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "6b28cae137d0ef8c7b8f41c1563b343e9c5a12678bfe126875365789e4cc63ed"
