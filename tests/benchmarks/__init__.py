"""What ``make bench`` runs: times against the tools that do the like, and peak memory."""
