"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "a114dd16d213bf013610bc9e9c80663f1c4254dfc9649923c61bf587c1b52128"
