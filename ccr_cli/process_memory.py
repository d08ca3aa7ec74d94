"""The memory of this process: its peak and its limit. Windows reports neither: the peak is 0, and no limit is set."""

import sys
from contextlib import suppress

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]


def peak_mb() -> float:
    """The most memory that the process has used, in MB; 0 if the system does not report it."""
    if resource is None:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


def address_space() -> int | None:
    """The limit of the process's address space in bytes; None without one."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0] if resource else -1
    return limit if limit >= 0 else None


def limit_address_space(limit: int) -> None:
    """Limits the process's address space to `limit` bytes, or to a lower hard limit, if the system supports it."""
    if resource:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        with suppress(ValueError, OSError):  # macOS refuses limits below what it has reserved
            resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
