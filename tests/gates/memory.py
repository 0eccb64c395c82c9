"""The peak memory of a process, for tests that start one."""

#: Source for the start of a child's program. `ru_maxrss` of Linux also counts the parent's peak, which exec hands down.
PEAK = """
import resource, sys

def peak():
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform != "linux":
        return used
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
"""
