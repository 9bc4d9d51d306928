"""Facts from torch graphs: an abstract interpretation of one rank's program over placements."""
