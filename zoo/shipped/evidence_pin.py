"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "227a968c9fbfc5c551b03c76c7dc25f71b621fc353af1659caabf82f5598e2a8"
