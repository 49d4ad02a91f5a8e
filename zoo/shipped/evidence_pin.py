"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "f23793beb54309e1b737abb5c0f4f2778b96696e5b068702cadfba8fa4de853b"
