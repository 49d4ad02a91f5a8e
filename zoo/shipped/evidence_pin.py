"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "036b3cb53f801546bdbce78c8fac0aac718c1ec431912f0a47c7b66ff247af3d"
