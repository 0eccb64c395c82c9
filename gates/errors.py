"""The exit codes of every verb, and the two errors that end a verb in one sentence: the user's and ours.

Only the standard library is imported, so that a fault can be reported where nothing else can be loaded.
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum


class ExitCode(IntEnum):
    """How a verb ends.

    A run that came to its end is FAILED if a subject failed, whatever else there is, and FAULT if none did but a gate or the
    oracle raised. A run that could not go on is FAULT.
    """

    HELD = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3
    FAULT = 4
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.HELD: "all held",
    ExitCode.FAILED: "a subject failed (timeouts included), a requirement is unmet or a waiver is stale",
    ExitCode.USAGE: "usage",
    ExitCode.NOTHING: "nothing was measured",
    ExitCode.FAULT: "our fault: no subject failed but a gate or the oracle raised, or the run could not go on (disk full, too few open files)",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C or SIGTERM",
}
EXIT_CODES = f"Exit codes: {' · '.join(f'{code.value} {meaning}' for code, meaning in MEANINGS.items())}."

SPACE = "free some space there, or write to another disk"
FILES = "raise the limit (ulimit -n 1024), or run fewer workers (--jobs 1)"
ALLOW = "allow writing there, or write to another folder"
REMEDIES = {  # of what the machine refuses, whatever was asked for
    errno.ENOSPC: SPACE,
    errno.EDQUOT: SPACE,
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f unlimited)",
    errno.EMFILE: FILES,
    errno.ENFILE: "the whole machine has too many open files; end other programs",
    errno.ENOMEM: "free some memory, or run fewer workers (--jobs 1)",
    errno.EAGAIN: "raise the limit on processes (ulimit -u), or run fewer workers (--jobs 1)",
    errno.EIO: "the disk or the connection to it has an error; write to another one",
    errno.EROFS: ALLOW,
    errno.EACCES: ALLOW,
    errno.EPERM: ALLOW,
}
SCARCE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})


class ConfigurationError(Exception):
    """The user asked for something impossible; the message says what was found and what to do. Exit code 2."""


class FaultError(Exception):
    """Gates, or the machine that it runs on, failed: disk full, too few open files. Exit code 4."""


def scarce(error: BaseException) -> bool:
    """Return whether the machine has too little of something, so that a call failed which is right by itself."""
    return isinstance(error, OSError) and error.errno in SCARCE


def sentence(what: str, error: OSError) -> str:
    """Return `what: why; remedy`, where `what` names the file."""
    remedy = REMEDIES.get(error.errno or 0, "")
    why = error.strerror or os.strerror(error.errno or 0)
    return f"{what}: {why}{f'; {remedy}' if remedy else ''}"


def unwritable(
    path: object, error: OSError, otherwise: str = "", *, begun: bool = False
) -> ConfigurationError | FaultError:
    """Return the error for a file that cannot be written: ours if the machine refuses, else the user named a wrong place.

    `otherwise` is the remedy for a wrong place; `begun` says that the place was there before.
    """
    words = sentence(f"cannot write {path}", error)
    if error.errno in REMEDIES or (begun and error.errno == errno.ENOENT):
        return FaultError(words)
    return ConfigurationError(f"{words}{f'; {otherwise}' if otherwise else ''}")


def unreadable(path: object, error: OSError) -> ConfigurationError | FaultError:
    """Return the error for a file that cannot be read: ours if the machine has too little of something, else the user's."""
    if scarce(error):
        return FaultError(sentence(f"cannot read {path}", error))
    return ConfigurationError(f"cannot read {path}: {error.strerror or error}")
