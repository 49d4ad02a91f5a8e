"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "1e6fa0266de853d336642c52a58f2505b7504eb6ca4e6d9e32b40b39c52399a9"
