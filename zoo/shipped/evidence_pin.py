"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "bcbee77f7f27beb8d630fba8c15f33e07472b2ef24c958777e35c455f4be79d9"
