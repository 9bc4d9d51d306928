"""Mutation campaigns over plans, contracts, frames and the checker itself."""
