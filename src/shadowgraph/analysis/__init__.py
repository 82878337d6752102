"""Streaming computations over the columns of a trace."""
