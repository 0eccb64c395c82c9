"""Run scripts in forks of one process that has imported a library, so that each does without the seconds of that import.

python forking.py MODULE..., by an interpreter with the library. Each line of standard input is a request in JSON: script and arguments (command), the
folder of the recorder or None (recorder), and of each rank its variables and the file for what it prints (ranks). Each line of
standard output is the exit codes of the ranks.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def recorded(folder: str) -> None:
    """Start the recorder, as its sitecustomize.py does: at once of what is imported, the rest when the script imports it."""
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("gates_sitecustomize", Path(folder, "sitecustomize.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, (recorder, function) in module.RECORDERS.items():
        if name in sys.modules:
            getattr(importlib.import_module(recorder), function)()


def become(rank: dict[str, Any], command: list[str], recorder: str | None) -> str:
    """Make this fork the process of a script, and return the script's text."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    printed = os.open(rank["printed"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.environ.update(rank["variables"])
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)
    if recorder is not None:
        recorded(recorder)
    return Path(command[0]).read_text(encoding="utf-8")


def forked() -> tuple[str, str] | None:
    """Serve requests; return file and text of a script in each fork, None at the end of requests."""
    for line in sys.stdin:
        request = json.loads(line)
        children = []
        for rank in request["ranks"]:
            child = os.fork()
            if not child:
                return request["command"][0], become(rank, request["command"], request["recorder"])
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)  # noqa: T201
    return None


for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()  # pages that no fork writes to
script = forked()
code = 0
if script is not None:
    __file__ = script[0]
    try:
        exec(compile(script[1], script[0], "exec"))  # noqa: S102  in __main__, as an interpreter runs it
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:  # noqa: BLE001  what an interpreter prints
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # to free what was imported takes longer than a script
