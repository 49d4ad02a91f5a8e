"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "dfb226dab82ee5b1884b0a473dc734889a81d32f4f5cee765e8175a655d20fe0"
