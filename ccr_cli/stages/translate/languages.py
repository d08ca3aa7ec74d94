"""Several languages, one after the other: what stops one of them does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ccr_cli.console import say
from ccr_cli.errors import CcrError, ResourceError, UsageError
from ccr_cli.stages.translate.job import Wanted


def in_turn(wanted: Sequence[Wanted], work: Callable[[Wanted], None]) -> CcrError | None:
    """Does the work for each language.

    A failure is said at once, and the next language's turn comes: no engine for the pair, too many captions that
    failed, a name that is taken. Where it concerns them all (wrong options, no disk), it ends there.

    Args:
        wanted: What is asked for, a language each.
        work: Makes what is wanted of one.

    Returns:
        What to raise in the end, with the exit code of the first failure; None where there was none.
    """
    first: CcrError | None = None
    missed: list[str] = []
    for number, each in enumerate(wanted):
        try:
            work(each)
        except CcrError as error:
            if len(wanted) == 1:
                return error
            first = first or error
            hint = f"\n  try: {error.hint}" if error.hint else ""
            say(f"error: --lang {each.lang}: {error.message}{hint}", level=-1, style="bold red")
            missed.append(each.lang)
            if isinstance(error, UsageError | ResourceError):
                missed += [other.lang for other in wanted[number + 1 :]]
                break
    if first is None:
        return None
    last = CcrError(
        f"not made: {', '.join(missed)} (why is said above)",
        hint="mend the cause and give the same command again: what is made is not made twice",
    )
    last.exit_code = first.exit_code
    return last
