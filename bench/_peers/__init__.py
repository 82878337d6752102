"""Other tracers, each measured with the same program: one file for each, with a function `measure`."""
