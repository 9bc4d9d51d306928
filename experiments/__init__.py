"""What the paper reports, computed anew, each experiment one entry of the registry."""
