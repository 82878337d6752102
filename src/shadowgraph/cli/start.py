"""Where the `shadowgraph` command begins: Ctrl-C ends it in silence also while it is still being loaded."""

from __future__ import annotations

import signal

__all__ = ["run"]


def run() -> None:
    """Load the command line and run it. Python's own handler would show where in our imports the key was hit."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from shadowgraph.cli import main

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main.run()


if __name__ == "__main__":
    run()
