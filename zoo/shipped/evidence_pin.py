"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "b3e1775e142666154ac4562a43b9b40356c339bc1f32d28e4791494af943a860"
