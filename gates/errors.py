"""Exit codes, and the two errors that end a verb with one sentence: ConfigurationError and FaultError.

Only the standard library is imported, so that a fault can be reported where nothing else can be loaded.
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of a verb.

    A complete run is FAILED if a subject failed, and FAULT if none did but a gate or the oracle raised. A run that stopped
    early is FAULT, unless it was stopped from outside.
    """

    HELD = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3
    FAULT = 4
    INTERRUPTED = 130
    UNREAD = 141  # as a shell says of a program that SIGPIPE ended


MEANINGS = {
    ExitCode.HELD: "all held",
    ExitCode.FAILED: "a subject failed (timeouts included), a requirement is unmet or a waiver is stale",
    ExitCode.USAGE: "usage",
    ExitCode.NOTHING: "nothing was measured",
    ExitCode.FAULT: "our fault: no subject failed but a gate or the oracle raised, or the run could not go on (disk full, too few open files)",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C or SIGTERM",
    ExitCode.UNREAD: "the program that read the output has ended, as in `| head -1`",
}
EXIT_CODES = f"Exit codes: {' · '.join(f'{code.value} {meaning}' for code, meaning in MEANINGS.items())}."

SPACE = "free some space there, or write to another disk"
FILES = "raise the limit (ulimit -n 1024), or run fewer workers (--jobs 1)"
ALLOW = "allow writing there, or write to another folder"
REMEDIES = {  # for errors of the machine rather than of the request
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
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
SCARCE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})


class ConfigurationError(Exception):
    """The user asked for something impossible; the message says what was found and what to do. Exit code 2."""


class FaultError(Exception):
    """Gates, or the machine that it runs on, failed: disk full, too few open files. Exit code 4."""


class FullDiskError(FaultError):
    """A disk has no space left; what was written is kept, and the run can go on elsewhere. Exit code 4."""


def fault(action: str, error: OSError) -> FaultError:
    """Return the fault of a write, in the words of `sentence`."""
    return (FullDiskError if error.errno in FULL else FaultError)(sentence(action, error))


def scarce(error: BaseException) -> bool:
    """Return whether a call failed because the machine is short of a resource."""
    return isinstance(error, OSError) and error.errno in SCARCE


def sentence(action: str, error: OSError) -> str:
    """Return `action: why; remedy`, where `action` is what failed, such as `cannot write FILE`."""
    remedy = REMEDIES.get(error.errno or 0, "")
    why = error.strerror or os.strerror(error.errno or 0)
    return f"{action}: {why}{f'; {remedy}' if remedy else ''}"


def unwritable(
    path: object, error: OSError, otherwise: str = "", *, begun: bool = False
) -> ConfigurationError | FaultError:
    """Return the error for a file that cannot be written: a fault if the machine refuses, else a wrong path.

    `otherwise` is the remedy for a wrong path; `begun` says that the path existed before.
    """
    message = sentence(f"cannot write {path}", error)
    if error.errno in FULL and otherwise:
        return FullDiskError(f"{message}; {otherwise}")
    if error.errno in REMEDIES or (begun and error.errno == errno.ENOENT):
        return FaultError(message)
    return ConfigurationError(f"{message}{f'; {otherwise}' if otherwise else ''}")


def unreadable(path: object, error: OSError) -> ConfigurationError | FaultError:
    """Return the error for a file that cannot be read: a fault if the machine is short of a resource, else the user's."""
    if scarce(error):
        return FaultError(sentence(f"cannot read {path}", error))
    hint = "; standard input is not read: name a file" if str(path) == "-" else ""
    return ConfigurationError(f"cannot read {path}: {error.strerror or error}{hint}")
