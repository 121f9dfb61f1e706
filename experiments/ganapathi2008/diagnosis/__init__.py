"""Why rounds of CCCP on superpixels end where they do (behind table 3)."""
