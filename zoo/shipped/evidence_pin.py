"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "20467d317f4750a4ebfb69899c27096551cb40e8be6cab1526acba4f28fb455a"
