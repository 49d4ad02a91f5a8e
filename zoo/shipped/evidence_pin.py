"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "c577fb7b01566b5520a54f9aab2996e9a7e3d3d0e018d8653a809e0b81b20c2c"
