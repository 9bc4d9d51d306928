"""The report: one self-contained HTML page of claims, tables, figures, and an explorer.

``explorer`` runs planners, checker and counterexamples and says what they found as data;
``page`` makes HTML of that and of the results. The page's script computes no verdict.
"""
