"""Loading numpy as the recorder needs it."""

from __future__ import annotations

import os

__all__ = ["load_numpy"]

# Read by OpenBLAS when it is loaded (its user manual, "Environment variables").
_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy without the threads that its linear algebra would start, which nothing of ours uses.

    They double the time it takes, and a process with threads is a bad one to fork from. The recorded program, whose
    environment is ours, sees nothing of it.
    """
    if _THREADS in os.environ:
        import numpy as np
    else:
        os.environ[_THREADS] = "1"
        try:
            import numpy as np
        finally:
            del os.environ[_THREADS]
    del np
