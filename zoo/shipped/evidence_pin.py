"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "6196b4f1df24217c8d75d3754c604344fcb848342d06b4cdd8d483c1c63d68bd"
