"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "67537390b4818000867869ffe9b91ebcef27bf563963994015cb8265e9a16747"
