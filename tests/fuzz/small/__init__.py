"""Small problems of every benchmark family, through every exact entry point, against optima in exact fractions."""
