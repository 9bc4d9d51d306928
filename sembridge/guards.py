"""The conditions that the rules test, as predicates over single values.

Written with ``==``, ``!=``, ``<=``, ``&``, ``|`` and ``^`` alone, so that one definition reads
Python values (booleans, frozensets) in the checker and solver terms in the soundness theorem.
"""

# ruff: noqa: D103  (each is one line, and says itself)

from __future__ import annotations

from typing import Any

Term = Any
"""A Python value, or a solver term that overloads the operators above."""


def crosses(src_domain: Term, dst_domain: Term) -> Term:
    return src_domain != dst_domain


def inside(domain: Term, other_domain: Term) -> Term:
    return domain == other_domain


def outstanding(complete: Term) -> Term:
    return complete ^ True


def registered(operator: Term, registered_operator: Term) -> Term:
    return operator == registered_operator


def exactly(sources: Term, registered_sources: Term) -> Term:
    return sources == registered_sources


def issued_by_owner(issuers: Term, sources: Term, owners: Term, reduced: Term) -> Term:
    return (issuers <= owners) & (reduced | (sources <= owners))


def substitutable(sources: Term, members: Term) -> Term:
    return sources <= members


def reassembled(replicate: Term, several_sources: Term) -> Term:
    return replicate & several_sources
