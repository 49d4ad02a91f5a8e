"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "7e61af15cece56b0299c62a5669184f19c075b87d8ea3d68487254b1b1d4b7f3"
