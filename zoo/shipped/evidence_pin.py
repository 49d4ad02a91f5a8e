"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "5072d5988d30e09e16bffebaa8fedcf02e0d200fa9ad0dcd2faf43bb702c35d7"
