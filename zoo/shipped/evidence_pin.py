"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "6018e0e07e2669eed72886f6fabec6b4f9cfdfa5ad4a07f2dfae618553ed1e13"
