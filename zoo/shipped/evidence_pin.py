"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "f086333daf3e8afd528811204cdb634cf95db09538a4ae5f1509d3f3a9e63c85"
