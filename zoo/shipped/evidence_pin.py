"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "14e20e6048533a81b401262c1089891f68edb44e2c4522f64f68262e6473462c"
