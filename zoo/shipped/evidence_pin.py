"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "308a9efd9da888d77542695d7513a049a49118598b4040dba199f0523abe57dd"
