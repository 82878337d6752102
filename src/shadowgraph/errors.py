"""What may go wrong for a user's reason: one sentence with the cause, the evidence and the remedy.

Everything that a user can bring about is raised as a :class:`ShadowgraphError`; the command line alone turns it into a
line on stderr and an exit code. Anything else that escapes is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

__all__ = ["EXIT_CANNOT_START", "EXIT_USAGE", "ShadowgraphError", "StartError", "UsageError"]

EXIT_USAGE = 2
EXIT_CANNOT_START = 125


class ShadowgraphError(Exception):
    """A mistake or an obstacle that one sentence explains; ``exit_code`` is what the command line ends with."""

    exit_code = EXIT_USAGE


class UsageError(ShadowgraphError):
    """What the user asked for cannot be done as asked (exit code 2)."""


class StartError(ShadowgraphError):
    """The target could not be started or entered (exit code 125)."""

    exit_code = EXIT_CANNOT_START
