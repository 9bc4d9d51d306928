"""SemBridge: what must cross a boundary between two vendor stacks, checked."""

__version__ = "0.1.0"
