"""Mutation campaigns: broken plans, changed contracts, weakened checkers, and what notices them."""
