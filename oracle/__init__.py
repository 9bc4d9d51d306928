"""Independent judges and rival planners: what the checker and the lowerer are held against."""
