"""Runs a program with Frida's hooks in its traced functions: frida_host.py c|javascript PROGRAM ARGUMENTS…"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import frida

C_HOOKS = """
#include <gum/guminterceptor.h>
void onEnter(GumInvocationContext *context) {}
void onLeave(GumInvocationContext *context) {}
"""

SCRIPT = """
const module = %s ? new CModule(%s) : null;
const hooks = module ? {onEnter: module.onEnter, onLeave: module.onLeave} : {onEnter(values) {}, onLeave(value) {}};
globalThis.kept = module;
const refused = [];
for (const symbol of Process.enumerateModules()[0].enumerateSymbols()) {
    if (symbol.type !== 'function' || !symbol.name.startsWith('traced_')) continue;
    try { Interceptor.attach(symbol.address, hooks); } catch (error) { refused.push(symbol.name); }
}
send(refused);
"""


def main(language: str, *command: str) -> None:
    """Start, hook, and wait for the end."""
    ended = threading.Event()
    pid = frida.spawn(list(command), stdio="inherit")
    session = frida.attach(pid)
    session.on("detached", lambda *reason: ended.set())
    script = session.create_script(SCRIPT % (json.dumps(language == "c"), json.dumps(C_HOOKS)))
    script.on("message", said)
    script.load()
    frida.resume(pid)
    ended.wait()


def said(message: Any, data: Any) -> None:
    """What the script sends: the functions it could not hook."""
    print(message.get("payload", message), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
