"""The live harness (§5): plans run between communicators that share nothing.

``frame``, ``carrier`` and ``auth`` move bytes between two domains; ``backends`` names the native
communicators inside one; ``schedule`` and ``executor`` run a plan at one rank; ``local`` makes
ranks of threads, ``launch`` and ``host`` of processes. What runs tensors needs torch.
"""
