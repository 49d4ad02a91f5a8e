"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "290a0bf35e2767ca4dddc25d2cdc4b802e34b50e5f14775c8529e1ebf478dfbd"
