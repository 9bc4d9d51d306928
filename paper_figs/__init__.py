"""The paper's tables and figures in its form, from results."""
