"""The live harness (§5): plans run between communicators that share nothing.

``frame`` and ``carrier`` move bytes between two domains, ``backends`` names the native
communicators inside one, ``executor`` runs a plan at one rank, and ``world`` launches the ranks.
Only the last three need torch.
"""
