"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "d330e88ef57124280b589963282d29a02f923c55131799253f0c9142c937cc7c"
