"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "1e3d16ddb8dfd15bdeaf7004360ae8d28e7b41a787c1e6929c9531542c6260b9"
