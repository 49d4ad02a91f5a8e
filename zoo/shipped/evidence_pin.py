"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "565901e3606374962333500d15767608d5deca90cd9f02ababc20d5d04c12bdb"
