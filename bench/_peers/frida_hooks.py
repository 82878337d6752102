"""Frida's Interceptor: hooks written in C (CModule) that do nothing at all, and the same in JavaScript."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from _calls import Figures, Load, run
from _programs import build_calls

from _peers.peer import SHAPES, Measured, NotInstalled

__all__ = ["measure_c", "measure_javascript"]

HOST = Path(__file__).with_name("frida_host.py")


def measure_c(folder: Path, rounds: int, calls: int) -> Measured:
    """Empty C functions at entry and return: what the mechanism costs, with nothing recorded."""
    return _measure("c", rounds, calls)


def measure_javascript(folder: Path, rounds: int, calls: int) -> Measured:
    """Empty JavaScript functions."""
    return _measure("javascript", rounds, calls)


def _measure(language: str, rounds: int, calls: int) -> Measured:
    figures = Figures()
    command = [_python(), str(HOST), language, str(build_calls()), *Load(SHAPES, rounds, calls).arguments]
    return Measured(figures, run(command, figures))


def _python() -> str:
    """A Python that has frida: FRIDA_PYTHON, or this one."""
    python = os.environ.get("FRIDA_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import frida"], capture_output=True).returncode:
        raise NotInstalled("frida is not installed in this Python (FRIDA_PYTHON names another one)")
    return python
