"""What an evaluation found, for people: a sentence, the figures, and what they rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ccr_cli import console
from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.signature import signature_of

_DIRECTIONS = ("t2v", "v2t")
_SHOWN = ("R@1", "R@5", "R@10", "MedR", "mAP")
_CORRUPTED = {
    "drop": "words dropped",
    "replace": "words replaced",
    "shuffle": "words shuffled",
    "features": "features masked",
    "both": "words dropped and features masked",
}


def show_evaluation(artifact: Artifact) -> None:
    """Shows what an evaluation found: a sentence, and the figures with intervals; with `-v` signatures and more.

    The figures are a table on a terminal, lines otherwise.
    """
    from ccr_cli.artifacts.evaluation import headline, mean_ap, results

    found = results(artifact)
    name = headline(found[0])  # one protocol an evaluation, one headline
    values = [mean_ap(r) if name == "mAP" else r[name] for r in found]
    if console.brief:
        say = ", ".join(f"{_what(r)} {_number(value)}" for r, value in zip(found, values, strict=True))
        console.say(f"  {name}: {say}")
        return
    for sentence in _sentences(found, name, values):
        console.say(sentence, style="bold")
    heads = [_certain(r, name, None, value) for r, value in zip(found, values, strict=True)]
    if console.stderr().is_terminal and console.verbosity >= 0:
        _draw(artifact.name, found, name, heads)
    else:
        for result, value in zip(found, heads, strict=True):
            parts = {d: " ".join(f"{k} {_certain(result, k, d)}" for k in _SHOWN) for d in _DIRECTIONS}
            figures = [f"{_asked(result, d)} {text}" for d, text in parts.items()]
            console.say(f"{_what(result)}: {name} {value}; {'; '.join(figures)}")
    for result in found:
        console.say(f"{_what(result)}: {result['signature']}", level=1, style="dim")
        _break_down(result)
        _say_uncertainty(result)
        if told := result.get("uncertainty"):
            told = ", ".join(f"{_asked(result, d)} {_number(told[d], 3)}" for d in _DIRECTIONS)
            console.say(f"{_what(result)}: mean uncertainty {told}")
        _say_apart(result, f"out of distribution ({_of(result)})", result.get("ood"))
        _say_apart(result, "corrupted from intact", result.get("told_apart"))
    told = found[0].get("intervals")
    if told:
        console.say(
            f"± half of, or in brackets, the {told['level']:.0%} bootstrap interval over {told['drawn']}", style="dim"
        )


def _sentences(found: Sequence[dict[str, Any]], name: str, values: Sequence[float | None]) -> Iterator[str]:
    """What was asked for beside the figures, in a sentence a language: what corruption does, or what is told apart.

    Of queries in the target language; where there are none, of those that there are.
    """
    plain = {r["data"] + r["lang"]: v for r, v in zip(found, values, strict=True) if _plain(r) and not r.get("corrupt")}
    own = {r["data"] + r["lang"]: r for r in found if _plain(r) and not r.get("corrupt")}
    targets = [r for r in found if r["role"] == "target"] or found
    for result, value in zip(found, values, strict=True):
        key = result["data"] + result["lang"]
        if not _plain(result) or not any(result is each for each in targets):
            continue
        if result.get("corrupt") and plain.get(key) is not None and value is not None:
            before, after = own[key].get("uncertainty") or {}, result.get("uncertainty") or {}
            moved = [
                f"{d.upper()} {_moved(before[d], after[d], 3)}"
                for d in _DIRECTIONS
                if before.get(d) is not None and after.get(d) is not None
            ]
            doubt = f", mean uncertainty {', '.join(moved)}" if moved else ""
            yield f"{_what(result)}: {name} {_moved(plain[key] or 0.0, value, 1)}{doubt}"
        if result.get("ood"):
            yield f"{_what(result)}: {_told(result['ood'])}"


def _plain(result: dict[str, Any]) -> bool:
    return result["fusion"] == "none" and not result.get("reading")


def _moved(before: float, after: float, digits: int) -> str:
    a, b = f"{before:.{digits}f}", f"{after:.{digits}f}"
    return f"stays at {a}" if a == b else f"{'rises' if after > before else 'falls'} from {a} to {b}"


def _told(ood: dict[str, Any]) -> str:
    """How often uncertainty is right about which of two queries does not belong."""
    shares = []
    for direction in _DIRECTIONS:
        each = ood.get(direction) or {}
        score = each if "auroc" in each else each.get("trivial", {}).get("top similarity", {})
        if score.get("auroc") is not None:
            shares.append(f"{score['auroc']:.0%} ({direction.upper()})")
    own = any("auroc" in (ood.get(d) or {}) for d in _DIRECTIONS)
    who = "uncertainty" if own else "there is no uncertainty; similarity"
    of = "a query that belongs to the gallery and one that does not"
    return f"{who} tells {of} apart in {' and '.join(shares) or 'no'} of cases, where chance is 50%"


def _of(result: dict[str, Any]) -> str:
    return str(result.get("ood", {}).get("of", "left out"))


def _break_down(result: dict[str, Any]) -> None:
    """Says, where more is asked for (`-v`), the figures of short and long queries, and by their translation."""
    told = result.get("breakdown") or {}
    lines = []
    if told.get("length"):
        unit = told["length"]["unit"]
        lines += [(f"{g['low']:g} to {g['high']:g} {unit}", g) for g in told["length"]["groups"]]
    if told.get("translation"):
        found = told["translation"]
        lines += [(f"translated, {name.replace('_', ' ')}", found[name]) for name in ("flagged", "not_flagged")]
        lines += [(f"translated with chrF {g['low']:.0f} to {g['high']:.0f}", g) for g in found["groups"]]
    for what, group in lines:
        figures = " ".join(f"{k} {_number(group[k])}" for k in _SHOWN)
        console.say(f"  {what}: {group['queries']} queries ({group['share']:.0%}); T2V {figures}", level=1)


def _say_uncertainty(result: dict[str, Any]) -> None:
    """Says, where more is asked for, whether the uncertainty of text queries beats what similarities tell for free."""
    own = (result.get("calibration") or {}).get("t2v") or {}
    others = [
        f"{name} {_number(each['auroc'], 3)}{_verdict((each.get('gaps') or {}).get('auroc'))}"
        for name, each in (own.get("trivial") or {}).items()
    ]
    if others:
        mine = f"{_uncertainty(result)} {_number(own['auroc'], 3)} " if "auroc" in own else "no uncertainty of its own "
        console.say(f"  T2V, first result wrong, AUROC: {mine}beside {', '.join(others)}", level=1)


def _uncertainty(result: dict[str, Any]) -> str:
    """What an uncertainty is called: a softmax with its temperatures, where the method has none of its own."""
    signed = signature_of(result)
    if signed is None or not signed.softmax:
        return "uncertainty"
    return f"softmax at temperature {', '.join(f'{each:.3f}' for each in result['temperature'])}"


def _say_apart(result: dict[str, Any], what: str, told: dict[str, Any] | None) -> None:
    """Says how well queries of two kinds are told apart, and whether by more than what similarities tell for free."""
    for direction in _DIRECTIONS:
        own = (told or {}).get(direction)
        if own is None:
            continue
        others = [
            f"{each} {_number(found['auroc'], 3)}{_verdict(found.get('gap'))}" for each, found in own["trivial"].items()
        ]
        mine = "no uncertainty of its own"
        if "auroc" in own:
            ends = own["interval"]
            mine = f"uncertainty {_number(own['auroc'], 3)}" + (f" [{ends[0]:.3f}, {ends[1]:.3f}]" if ends else "")
        console.say(f"{_what(result)}: {direction.upper()} {what}, AUROC: {mine} beside {', '.join(others)}")


def _verdict(gap: list[float] | None) -> str:
    if gap is None:
        return ""
    said = "beaten" if gap[0] > 0 else "is better" if gap[1] < 0 else "not beaten"
    return f" ({said}: {gap[0]:+.3f} to {gap[1]:+.3f})"


def _what(result: dict[str, Any]) -> str:
    role = " (source)" if result["role"] == "source" else ""
    fusion = "" if result["fusion"] == "none" else f", fused {result['fusion']}"
    reading = f", {result['reading']} alone" if result.get("reading") else ""
    signed = signature_of(result)
    by = f", sentences by {signed.pos}" if signed and result.get("task") else ""
    worse = f", {_corrupted(result['corrupt'], result['lang'])}" if result.get("corrupt") else ""
    several = f", mean of {len(result['ensemble'])} runs" if result.get("ensemble") else ""
    return f"{result['data']} {result['lang']}{role}{several}{fusion}{reading}{by}{worse}"


def _corrupted(told: str, lang: str) -> str:
    """`drop0.3-seed0` in words: `30% of words dropped`; of characters in languages without spaces between words."""
    from ccr_cli.metrics.corruption import Corruption
    from ccr_cli.metrics.scripts import has_spaces

    corruption = Corruption.parse(told)
    if corruption is None:
        return f"corrupted {told}"
    words = _CORRUPTED[corruption.kind]
    words = words if has_spaces(lang) else words.replace("words", "characters")
    return f"{100 * corruption.share:g}% of {words}"


def _asked(result: dict[str, Any], direction: str) -> str:
    """What a direction is called where it is shown; in text retrieval the source sentences stand for the pictures."""
    return (direction.replace("v", "s") if result.get("task") else direction).upper()


def _certain(result: dict[str, Any], name: str, direction: str | None, value: float | None = None) -> str:
    """A figure with half the width of its interval; a median, whose interval is lopsided, with both ends."""
    from ccr_cli.artifacts.evaluation import interval

    shown = _number(result[direction][name] if direction else value)
    ends = interval(result, name, direction)
    if ends is None or shown == "-":
        return shown
    low, high = ends
    return f"{shown} [{low:.1f}, {high:.1f}]" if name == "MedR" else f"{shown} ± {(high - low) / 2:.1f}"


def _draw(title: str, found: list[dict[str, Any]], name: str, heads: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(console.plain(title)), padding=(0, 0), pad_edge=False)
    table.add_column("queries")
    for column in ("", *_SHOWN):
        table.add_column(column, justify="right" if column else "left")
    for result, value in zip(found, heads, strict=True):
        what = f"{_what(result)}: {name} {value}"
        for n, direction in enumerate(_DIRECTIONS):
            cells = [_certain(result, k, direction) for k in _SHOWN]
            last = n == len(_DIRECTIONS) - 1
            table.add_row(Text("" if n else console.plain(what)), _asked(result, direction), *cells, end_section=last)
    console.stderr().print(table)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
