"""The users of hooked functions."""
