"""The agent seen from outside: its layout, its shared memory and its rings."""
