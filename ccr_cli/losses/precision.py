"""What the losses share: full precision and checks of arguments."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def no_autocast(x: Tensor) -> torch.autocast:
    """Context in which autocast is off on the device of ``x``."""
    return torch.autocast(device_type=x.device.type, enabled=False)


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` in float32 if it is of half precision, else unchanged (float64 stays float64)."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator that runs a function without autocast and passes half-precision tensors (also in lists) as float32."""

    def full(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [full(part) for part in value]
        return at_least_float32(value) if isinstance(value, Tensor) else value

    @wraps(function)
    def in_full_precision(*args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = args[0]
        with no_autocast(first if isinstance(first, Tensor) else first[0]):
            return function(*map(full, args), **{name: full(value) for name, value in kwargs.items()})

    return in_full_precision


def check_positive(name: str, value: float) -> None:
    """Raises ValueError unless the value is above 0."""
    if not value > 0:
        raise ValueError(f"{name} {value} is not positive")


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raises ValueError unless the value is one of the values of a Literal."""
    if value not in get_args(choices):
        raise ValueError(f"unknown {name} {value!r}: want {' or '.join(map(repr, get_args(choices)))}")


def check_shapes(one: Tensor, two: Tensor, dimensions: int) -> None:
    """Raises ValueError unless two tensors have the same shape with this number of dimensions."""
    if one.ndim != dimensions or one.shape != two.shape:
        shapes = f"{tuple(one.shape)} and {tuple(two.shape)}"
        raise ValueError(f"tensors of shape {shapes} in one batch: want equal ones with ndim {dimensions}")
