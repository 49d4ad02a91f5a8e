"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "c1686263664a5c9bcc1e89835bf081dd9d995e4a438bbcb9460cc67828ccb16d"
