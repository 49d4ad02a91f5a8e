"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "5353e0f15bc4b8a52e57f3ad820f9a5bbe29039fcd33e1eb1ec3a1a65fe7b7dc"
