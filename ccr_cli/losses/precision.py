"""What the losses share: full precision, checks of arguments, and a trigamma function with a cheap gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
_SHIFT = 8  # the recurrence moves the argument above this, where the series below has converged
# Bernoulli numbers B_2, B_4, ...: psi1(x) ~ 1/x + 1/(2 x^2) + sum_k B_2k / x^(2k+1)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_LARGE = 1000.0  # above it, 1/psi1(x) - x + 1/2 is taken from its expansion in 1/x


def no_autocast(x: Tensor) -> torch.autocast:
    """Context in which autocast is off on the device of ``x``."""
    return torch.autocast(device_type=x.device.type, enabled=False)


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` in float32 if it is of half precision, else unchanged (float64 stays float64)."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function of tensors, or lists of them: without autocast, and half precision comes in float32."""

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
    """Raises ValueError unless the value is one of a Literal's."""
    if value not in get_args(choices):
        raise ValueError(f"unknown {name} {value!r}: want {' or '.join(map(repr, get_args(choices)))}")


def check_shapes(one: Tensor, two: Tensor, dimensions: int) -> None:
    """Raises ValueError unless two tensors have one shape, of so many dimensions."""
    if one.ndim != dimensions or one.shape != two.shape:
        shapes = f"{tuple(one.shape)} and {tuple(two.shape)}"
        raise ValueError(f"tensors of shape {shapes} in one batch: want equal ones with ndim {dimensions}")


def trigamma(x: Tensor) -> Tensor:
    """psi1(x), the second derivative of log Gamma, for x >= 1.

    ``torch.special.polygamma(1, x)`` gives the same values, but its gradient is a Hurwitz zeta function that
    costs 25 times as much as the forward pass on a CPU. Here: psi1(x) = psi1(x + 8) + sum_{i<8} 1/(x + i)^2
    and the asymptotic series (Abramowitz and Stegun 6.4.6, 6.4.12), differentiated by autograd. Relative
    error in float64 below 1e-13.
    """
    total = torch.zeros_like(x)
    for i in range(_SHIFT):
        total = total + (x + i).square().reciprocal()
    inverse = (x + _SHIFT).reciprocal()
    square = inverse.square()
    series = torch.full_like(x, _BERNOULLI[-1])
    for number in reversed(_BERNOULLI[:-1]):
        series = series * square + number
    return total + inverse * (1 + inverse * (0.5 + inverse * series))


def reciprocal_trigamma_remainder(x: Tensor, trigamma_x: Tensor) -> Tensor:
    """r(x) = 1/psi1(x) - (x - 1/2) for x >= 1: positive, decreasing, at most 6/pi^2 - 1/2 = 0.108.

    Large arguments lose r to cancellation, so there it is taken from r(x) = 1/(12 x) + 1/(24 x^2) - 1/(720
    x^3) + O(x^-4), which follows from inverting the asymptotic series of psi1.
    """
    direct = torch.where(x < _LARGE, trigamma_x, torch.ones_like(x)).reciprocal() - x + 0.5
    inverse = x.clamp(min=_LARGE).reciprocal()
    expansion = inverse * (1 / 12 + inverse * (1 / 24 - inverse / 720))
    return torch.where(x < _LARGE, direct, expansion)
