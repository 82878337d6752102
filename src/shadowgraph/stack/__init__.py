"""Stack traces that say whether they can be relied on."""
