"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "6b54a0e0e6d69da8d4bce8d8baf161b30473710cc861777985254ec2ba92055c"
