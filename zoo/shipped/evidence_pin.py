"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "1be4ea0f553454e0c06ad169f7cc16aa09ce00581aaf9389883cb12dc218ea68"
