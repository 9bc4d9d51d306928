"""Measurements against named peers, in one run, as ratios. No test depends on a time."""
