"""The SMT legality model: value-level proofs over z3, written apart from the checker.

It shares the intermediate representation with the checker (contracts, obligations, plans,
surfaces) and nothing else, so that the two can contradict each other.
"""
