"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "97a6eafbb2db3c0f2e4e5170ec2c024cc3047b0ad247d6152be6699a41c78f15"
