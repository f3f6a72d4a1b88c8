"""A part of the stand-in for Rucio: a package alone."""
