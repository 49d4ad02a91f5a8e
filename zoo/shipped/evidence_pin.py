"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "d0f84cd5e96864c247591a62cd44df9cd3d6117d07ab0ee326e30a71e4d5baf1"
