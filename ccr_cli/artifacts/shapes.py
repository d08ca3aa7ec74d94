"""What JSON and TOML files of artifacts must look like, checked where they are read.

A shape is a type (`int`, `float | None`; every int is a float too, and numbers are finite), a list `[shape]` of any
length or `[shape, shape]` of two, a table `{"key": shape, "key?": shape}` (`?` may be absent; further keys are
allowed), a table `{str: shape}` with any keys, a tuple of alternatives, or `ANY`.
"""

import math
from collections.abc import Mapping
from types import NoneType
from typing import Any

ANY = object()
LARGEST = 2**63
"""Smallest whole number that is too large for a table."""

_FIGURE = float | None
_ENDS = ([float, float], NoneType)
"""A confidence interval."""
_MISMATCH = {"ratio": float, "style": str, "target": str, "seed": int}
_RANKED = {"R@1": float, "R@5": float, "R@10": float, "MedR": float, "queries": int, "mAP?": _FIGURE, "dropped?": int}
_INTERVALS = {"level": float, "drawn": str, "t2v?": {str: _ENDS}, "v2t?": {str: _ENDS}, "SumR?": _ENDS, "mAP?": _ENDS}
_GROUP = {"queries": int, "share": float, "R@1": _FIGURE, "R@5": _FIGURE, "R@10": _FIGURE, "MedR": _FIGURE}
_GROUPS = [_GROUP | {"low": float, "high": float}]
_CURVE = {"coverage": [float], "risk": [float]}
_GAPS = {"gaps?": {str: _ENDS}}
_CALIBRATION = {
    "auroc?": _FIGURE, "aurc?": _FIGURE, "aurc_random?": _FIGURE, "aurc_best?": _FIGURE, "risk?": {str: _FIGURE},
    "queries?": int, "curve?": _CURVE, "ece?": _FIGURE,
    "trivial?": {str: {"auroc?": _FIGURE, "aurc?": _FIGURE, "curve?": _CURVE, **_GAPS}},
}  # fmt: skip
_OUTSIDE = {"known": int, "unknown": int, "auroc": float, "interval?": _ENDS, "means?": [float], "rise?": [float]}
_RESULT = {
    "run": str, "method": str, "label": str, "noise": _FIGURE, "seed": int | None, "data": str, "split": str,
    "lang": str, "role": str, "fusion": str, "signature": str, "reading?": str | None, "queries?": str | None,
    "task?": str | None, "corrupt?": str | None, "ensemble?": ([str], NoneType), "t2v": _RANKED, "v2t": _RANKED,
    "SumR": _FIGURE, "SumR_interval?": _ENDS, "mAP_interval?": _ENDS, "intervals?": (_INTERVALS, NoneType),
    "breakdown?": {
        "length?": {"unit": str, "groups": _GROUPS},
        "translation?": {"flagged": _GROUP, "not_flagged": _GROUP, "groups?": _GROUPS},
    },
    "calibration?": ({"t2v?": (_CALIBRATION, NoneType), "v2t?": (_CALIBRATION, NoneType)}, NoneType),
    "temperature?": ([float], NoneType), "uncertainty?": ({str: _FIGURE}, NoneType),
    "ood?": (
        {"of?": str, "signature?": str, "left_out?": [int], "t2v?": _OUTSIDE, "v2t?": _OUTSIDE}, NoneType,
    ),
    "told_apart?": ({"t2v?": _OUTSIDE, "v2t?": _OUTSIDE}, NoneType),
}  # fmt: skip
_SCORE = {"score": float, "signature?": str, "interval?": _ENDS}
_QUALITY = {
    "captions": int, "failed": int, "flagged": int, "flags": {str: int | None}, "repeated": int,
    "length_ratio": _FIGURE, "score": _FIGURE, "round_trip": ({str: _SCORE}, NoneType),
    "references": [
        {
            "kind": str, "caption_set": str, "source_set": str, "captions": int, "scores": {str: _SCORE},
            "note": str | None,
        }
    ],
}  # fmt: skip
_VERDICTS = {
    "pairs": int, "called_noisy": int, "called_noisy_rare": int, "share_noisy": float,
    "split": {
        "by": str, "p_clean?": _FIGURE, "share?": _FIGURE, "sim_vt?": _FIGURE, "sim_st?": _FIGURE, "wrong?": _FIGURE,
        "expected?": ({"precision": _FIGURE, "recall": _FIGURE}, NoneType),
    },
    "detection": ({"auroc": _FIGURE, "recall": _FIGURE, "false_alarms": _FIGURE, "f1": _FIGURE}, NoneType),
    "calibration": ({"ece": float, "bins?": [{"p_clean": float, "clean": float, "pairs": int}]}, NoneType),
    "uncertainty": {"clean": _FIGURE, "noisy": _FIGURE},
}  # fmt: skip
_SUSPECT = {"source_text": str, "translation": str, "back": str | None, "p_clean": float, "support?": int}
_SUMMARY = _VERDICTS | {
    "run?": str, "data?": str, "translation?": str, "label?": str, "lang": (str, [str]), "judge": str,
    "judge_side?": str | None, "noise": _FIGURE, "seed?": int | None, "langs?": {str: _VERDICTS},
    "splits?": {str: _VERDICTS}, "most_suspicious": [_SUSPECT],
}  # fmt: skip
_OPTIONS = {"judge": str, "judge_side?": str, "batch_size?": int, str: str | bool | float | None}
_ENVIRONMENT = (
    {
        "seconds?": float, "media_root?": str | None, "recipe?": ({str: ANY}, NoneType), "source?": ANY,
        "engine.forward?": {str: str | None}, "given?": ({str: ANY}, [{str: ANY}], NoneType),
        "device?": str | None, "texts_per_second?": float, "items_per_second?": float, "weights_bytes?": int,
    },
    NoneType,
)  # fmt: skip
SHAPES: dict[str, Any] = {
    "local": {"command": str, "environment": _ENVIRONMENT, "parents": {str: str}},
    "record": {
        "kind": str, "schema": int, "name": str, "id": str, "request": {str: ANY}, "counts": {str: int},
        "parents": [{"kind": str, "id": str, "path": str}], "files": [{"path": str, "bytes": int, "sha256": str}],
        "created?": str | None, "command?": str | None, "versions?": ({str: str | None}, NoneType),
        "environment?": _ENVIRONMENT,
    },
    "dataset": {
        "manifest.toml": {
            "name": str, "source_lang?": str, "default_encoder?": str, "split_rule?": str, "get?": str,
            "partial?": [str], "parallel?": {str: str}, "evidence?": {str: str}, "protocols?": [{str: ANY}],
            "counts?": {str: ANY}, "translations?": [{str: str}], "files?": [{"path": str, "sha256": str}],
        },
    },
    "translation": {
        "request": {"lang": str, "engine": str, "split?": str | None, "rounds?": int},
        "quality.json": {
            str: {
                "splits": {str: _QUALITY}, "notes": [str], "source_lang?": str, "lang?": str,
                "usage?": {"sentences": int, "prompt_tokens": int, "completion_tokens": int, "cost?": float},
            },
        },
    },
    "noise": {"request": _MISMATCH, "counts": {"triplets": int, "mismatched": int}, "noise.json": _MISMATCH},
    "features": {
        "request": {"encoder": str, "dtype?": str, "concat?": [str], "parts?": [{"encoder": str}]},
        "encoder.json": {"encoder?": str, "dim?": int | None, "parts?": [{str: ANY}]},
    },
    "run": {
        "request": {
            "method?": str, "lang": (str, [str]), "seed?": int, "noise?": (_MISMATCH, NoneType),
            "alternatives?": {str: [str]},
        },
        "counts": {"epochs?": int, "best_epoch?": int},
        "config.json": {
            "method": str, "data?": str, "lang": (str, [str]), "seed": int, "noise": (_MISMATCH, NoneType),
            "preset": str | None, "select": str, "criterion?": str, "validation?": ([int, int], NoneType),
            "visual_dim?": int, "dropped?": int, "options": _OPTIONS, "human?": [str],
            "text_encoder": {
                "kind": str, "buckets?": int | None, "texts?": int | None, "model?": ({"vocab_size?": int}, NoneType),
            },
            "pairs?": ({"sha256": str}, NoneType),
        },
        "history.jsonl": {"epoch": int, "loss": {str: _FIGURE}, "val?": ({str: ANY}, NoneType)},
        "stopped.json": {"why": str},
    },
    "evaluation": {"request": {"split?": str | None}, "metrics.json": {"results": [_RESULT]}},
    "diagnosis": {"request": {"judge?": str}, "summary.json": _SUMMARY},
    "index": {
        "request": {"split": str | None, "find": str, "lang": str | None, "type": str},
        "counts": {"entries": int, "dim": int},
        "index.json": {
            "type": str, "effort": int, "depth?": int, "bytes?": int, "measured_on?": str,
            "recall": {"at": int, "value": float, "queries?": int},
        },
    },
}  # fmt: skip
"""What ccr reads of each kind of artifact: in its record (`request`, `counts`), and in its files."""


def problem(value: Any, shape: Any) -> str | None:
    """Says where and how a JSON or TOML value differs from a shape; None if it fits."""
    if (found := _difference(value, shape)) is None:
        return None
    return f"{found[0] or 'it'} {found[1]}"


def _difference(value: Any, shape: Any) -> tuple[str, str] | None:
    """Returns the place of a difference (built on the way back, so that a fit costs nothing), and what is wrong."""
    if isinstance(shape, tuple):
        found = []
        for alternative in shape:
            if (one := _difference(value, alternative)) is None:
                return None
            found.append(one)
        return max(found, key=lambda one: len(one[0]))
    if isinstance(value, str):
        if not _is_utf8(value):
            return "", "is not UTF-8"
    elif (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) >= LARGEST):
        return "", f"is {str(value)[:20]}, out of range"
    elif isinstance(value, dict) and (shape is ANY or isinstance(shape, dict)):
        return _difference_of_table(value, shape if isinstance(shape, dict) else {})
    elif isinstance(value, list) and (shape is ANY or isinstance(shape, list)):
        shapes: list[Any] = shape if isinstance(shape, list) else [ANY]
        if len(shapes) > 1 and len(value) != len(shapes):
            return "", f"has {len(value)} values, expected {len(shapes)}"
        for n, inner in enumerate(value):
            if (one := _difference(inner, shapes[n % len(shapes)])) is not None:
                return _within(f"[{n}]", one)
        return None
    if shape is ANY:
        return None
    if isinstance(shape, dict | list):
        return "", f"is {value!r:.60}, expected a {'table' if isinstance(shape, dict) else 'list'}"
    types = getattr(shape, "__args__", (shape,))
    whole = isinstance(value, int) and not isinstance(value, bool) and float in types
    if whole or type(value) in types:
        return None
    names = " or ".join("null" if type_ is type(None) else type_.__name__ for type_ in types)
    return "", f"is {value!r:.60}, expected {names}"


def _difference_of_table(value: Mapping[str, Any], shape: Mapping[Any, Any]) -> tuple[str, str] | None:
    for key in shape:
        if isinstance(key, str) and not key.endswith("?") and key not in value:
            return "", f"lacks {key!r}"
    for key, inner in value.items():
        if not _is_utf8(key):
            return key, "is not UTF-8"
        known = shape[key] if key in shape else shape.get(f"{key}?", shape.get(str, ANY))
        if (one := _difference(inner, known)) is not None:
            return _within(key, one)
    return None


def _within(step: str, found: tuple[str, str]) -> tuple[str, str]:
    dot = "." if found[0] and not found[0].startswith("[") else ""
    return f"{step}{dot}{found[0]}", found[1]


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode(errors="surrogateescape")  # as paths that are not UTF-8 are written
    except UnicodeEncodeError:
        return False
    return True
