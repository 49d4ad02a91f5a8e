"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "90cfc84fe22d16fa27a68b502f0d8f74494611028e1311f563b00d80ac7f49e4"
