"""Shadowgraph: a function-graph tracer for user space."""
