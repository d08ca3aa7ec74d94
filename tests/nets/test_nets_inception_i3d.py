"""Inception-I3D against the published table of layers, and against arithmetic done by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
import torch
import toy
from torch import Tensor, nn

from ccr_cli.errors import ArtifactError
from ccr_cli.nets import inception_i3d as i3d

TABLE = [
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128),
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
]
"""Of GoogLeNet (Szegedy et al., 2015, table 1), inputs first: #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool."""
SIZES = {
    "Conv3d_1a_7x7": (64, 32, 112),
    "Conv3d_2b_1x1": (64, 32, 56),
    "Conv3d_2c_3x3": (192, 32, 56),
    "Mixed_3b": (256, 32, 28),
    "Mixed_3c": (480, 32, 28),
    "Mixed_4b": (512, 16, 14),
    "Mixed_4c": (512, 16, 14),
    "Mixed_4d": (512, 16, 14),
    "Mixed_4e": (528, 16, 14),
    "Mixed_4f": (832, 16, 14),
    "Mixed_5b": (832, 8, 7),
    "Mixed_5c": (1024, 8, 7),
}
"""Channels, frames and height that come out of each layer for 64 frames of 224 x 224."""


@pytest.fixture(scope="module")
def network() -> i3d.InceptionI3d:
    """Random weights and statistics, frozen."""
    torch.manual_seed(0)
    network = i3d.InceptionI3d()
    for name, tensor in network.state_dict().items():
        if name.endswith("running_mean"):
            tensor.normal_(0, 0.1)
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
    return network.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def unfilled() -> i3d.InceptionI3d:
    """Shapes without numbers."""
    with torch.device("meta"):
        return i3d.InceptionI3d().eval()


def clip(frames: int, height: int, width: int, batch: int = 1) -> Tensor:
    return torch.rand(batch, 3, frames, height, width, generator=torch.Generator().manual_seed(1)) * 2 - 1


def published_state(network: nn.Module) -> dict[str, Tensor]:
    """As in the file that circulates, which is older than `num_batches_tracked`."""
    return {name: t for name, t in network.state_dict().items() if not name.endswith("num_batches_tracked")}


def other_port(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under the names of the port with `branch_0` and `batch3d`."""
    places = {"b0": "branch_0", "b1a": "branch_1.0", "b1b": "branch_1.1"}
    places |= {
        "b2a": "branch_2.0",
        "b2b": "branch_2.1",
        "b3b": "branch_3.1",
        "bn": "batch3d",
        "logits": "conv3d_0c_1x1",
    }
    renamed = {}
    for name, tensor in state.items():
        parts = [places.get(part, part[0].lower() + part[1:]) for part in name.split(".")]
        renamed[".".join(parts)] = tensor
    return renamed


def test_parameters_are_those_of_the_table(network: i3d.InceptionI3d) -> None:
    def unit(inputs: int, outputs: int, kernel: int) -> int:
        return inputs * outputs * kernel**3 + 2 * outputs

    expected = unit(3, 64, 7) + unit(64, 64, 1) + unit(64, 192, 3)
    for inputs, one, reduce3, three, reduce5, five, pool in TABLE:
        expected += unit(inputs, one, 1) + unit(inputs, reduce3, 1) + unit(reduce3, three, 3)
        expected += unit(inputs, reduce5, 1) + unit(reduce5, five, 3) + unit(inputs, pool, 1)
    body = sum(p.numel() for name, p in network.named_parameters() if not name.startswith("logits"))
    assert body == expected == 12_287_264
    assert sum(p.numel() for p in network.logits.parameters()) == 1024 * 400 + 400


def test_the_layers_have_the_published_names(network: i3d.InceptionI3d) -> None:
    state = published_state(network)
    assert len(state) == 5 * (3 + 6 * 9) + 2
    assert state["Conv3d_1a_7x7.conv3d.weight"].shape == (64, 3, 7, 7, 7)
    assert state["Mixed_3b.b1b.bn.running_mean"].shape == (128,)
    assert state["Mixed_5c.b2b.conv3d.weight"].shape == (128, 48, 3, 3, 3)
    assert state["logits.conv3d.bias"].shape == (400,)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm3d)]
    assert len(norms) == 57
    assert {norm.eps for norm in norms} == {1e-3}


def test_sizes_of_every_layer_at_64_frames() -> None:
    with torch.device("meta"):
        network = i3d.InceptionI3d().eval()
        sizes = {}
        for name, layer in network.named_children():
            layer.register_forward_hook(lambda _layer, _given, out, name=name: sizes.update({name: tuple(out.shape)}))
        segments = network.segments(torch.empty(2, 3, 64, 224, 224))
    assert sizes == {name: (2, c, t, hw, hw) for name, (c, t, hw) in SIZES.items()}
    assert segments.shape == (2, 8, 1024)


@pytest.mark.parametrize("frames", toy.some_fast([1, 7, 8, 9, 16, 17, 64, 65], 1, 9))
@pytest.mark.parametrize(
    ("height", "width"), [(224, 224), pytest.param(225, 223, marks=pytest.mark.slow), (32, 33), (1, 1)]
)
def test_any_number_of_frames_and_any_size_work(
    frames: int, height: int, width: int, unfilled: i3d.InceptionI3d
) -> None:
    given = torch.empty(1, 3, frames, height, width, device="meta")
    assert unfilled.segments(given).shape == (1, math.ceil(frames / 8), 1024)
    features = unfilled(given)
    assert features.shape == (1, 1024)
    assert unfilled.classify(features).shape == (1, 400)


@pytest.mark.parametrize("size", range(1, 20))
@pytest.mark.parametrize(("kernel", "stride"), [(7, 2), (3, 2), (2, 2), (3, 1), (1, 1), (1, 2)])
def test_padding_is_that_of_same(size: int, kernel: int, stride: int) -> None:
    before, after = i3d.same_padding(size, kernel, stride)
    assert (size + before + after - kernel) // stride + 1 == math.ceil(size / stride)
    assert after - before in (0, 1)
    assert before + after == 0 or (math.ceil(size / stride) - 1) * stride + kernel == size + before + after


def by_hand(
    x_CTHW: npt.NDArray[np.float64], kernel: tuple[int, int, int], stride: tuple[int, int, int]
) -> npt.NDArray[np.float64]:
    """All windows (C, t, h, w, kt, kh, kw) of SAME, window k of stride s starting at k * s - before; NaN outside."""
    sizes = x_CTHW.shape[1:]
    out = [math.ceil(n / s) for n, s in zip(sizes, stride, strict=True)]
    windows = np.full((x_CTHW.shape[0], *out, *kernel), np.nan)
    starts = [max((o - 1) * s + k - n, 0) // 2 for o, s, k, n in zip(out, stride, kernel, sizes, strict=True)]
    for place in np.ndindex(*out):
        for within in np.ndindex(*kernel):
            at = [p * s - b + k for p, s, b, k in zip(place, stride, starts, within, strict=True)]
            if all(0 <= a < n for a, n in zip(at, sizes, strict=True)):
                windows[(slice(None), *place, *within)] = x_CTHW[(slice(None), *at)]
    return windows


def unit_by_hand(unit: i3d.ConvUnit, x_CTHW: npt.NDArray[np.float64], stride: int = 1) -> npt.NDArray[np.float64]:
    weight = unit.conv3d.weight.double().numpy()
    windows = np.nan_to_num(by_hand(x_CTHW, weight.shape[2:], (stride,) * 3))
    y = np.einsum("cthwxyz,dcxyz->dthw", windows, weight)
    norm = unit.bn
    assert norm is not None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, variance, gain, shift = (
        tensor.double().numpy()[:, None, None, None]
        for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    result: npt.NDArray[np.float64] = np.maximum((y - mean) / np.sqrt(variance + 1e-3) * gain + shift, 0)
    return result


def random_unit(inputs: int, outputs: int, kernel: int, stride: int) -> i3d.ConvUnit:
    unit = i3d.ConvUnit(inputs, outputs, kernel, stride)
    randomise(unit)
    return unit


def randomise(module: nn.Module) -> None:
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm3d):
            for tensor in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
                assert tensor is not None
                tensor.uniform_(0.2, 1.0)
    module.double().eval().requires_grad_(False)


@pytest.mark.parametrize("size", [(5, 6, 7), (8, 9, 4), (1, 2, 3)])
@pytest.mark.parametrize(("kernel", "stride"), [(7, 2), (3, 1), (1, 1)])
def test_a_unit_is_what_it_is_by_hand(size: tuple[int, int, int], kernel: int, stride: int) -> None:
    torch.manual_seed(0)
    unit = random_unit(2, 3, kernel, stride)
    x = torch.randn(1, 2, *size, dtype=torch.float64)
    np.testing.assert_allclose(unit(x)[0].numpy(), unit_by_hand(unit, x[0].numpy(), stride), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [(5, 6, 7), (8, 9, 4), (1, 1, 1)])
@pytest.mark.parametrize(("kernel", "stride"), [*i3d.POOLS.values(), ((3, 3, 3), (1, 1, 1))])
def test_a_pool_is_what_it_is_by_hand(
    size: tuple[int, int, int], kernel: tuple[int, int, int], stride: tuple[int, int, int]
) -> None:
    x = torch.rand(1, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = np.nanmax(by_hand(x[0].numpy(), kernel, stride), axis=(4, 5, 6))
    np.testing.assert_array_equal(i3d.max_pool_same(x, kernel, stride)[0].numpy(), expected)


def test_a_mixed_block_is_what_it_is_by_hand() -> None:
    torch.manual_seed(0)
    block = i3d.Mixed(3, (2, 3, 4, 2, 3, 2))
    randomise(block)
    x = torch.rand(1, 3, 3, 5, 4, dtype=torch.float64)
    given = x[0].numpy()
    pooled = np.nanmax(by_hand(given, (3, 3, 3), (1, 1, 1)), axis=(4, 5, 6))
    expected = [
        unit_by_hand(block.b0, given),
        unit_by_hand(block.b1b, unit_by_hand(block.b1a, given)),
        unit_by_hand(block.b2b, unit_by_hand(block.b2a, given)),
        unit_by_hand(block.b3b, pooled),
    ]
    found = block(x)[0].numpy()
    assert found.shape == (2 + 4 + 3 + 2, 3, 5, 4)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-9, atol=1e-12)


def test_pooling_is_the_published_window_of_two_segments(network: i3d.InceptionI3d) -> None:
    segments_BSD = torch.randn(2, 5, 1024, dtype=torch.float64)
    block_BDS77 = segments_BSD.transpose(1, 2)[..., None, None].expand(-1, -1, -1, 7, 7)
    windows = nn.functional.avg_pool3d(block_BDS77, (2, 7, 7), 1).flatten(2)
    torch.testing.assert_close(network.pool(segments_BSD), windows.mean(dim=2))
    torch.testing.assert_close(network.pool(segments_BSD[:, :1]), segments_BSD[:, 0])
    logits = nn.functional.conv1d(windows.float(), network.logits.conv3d.weight[..., 0, 0], network.logits.conv3d.bias)
    torch.testing.assert_close(
        network.classify(network.pool(segments_BSD.float())), logits.mean(dim=2), rtol=1e-4, atol=1e-5
    )


def test_segments_are_averaged_over_space(network: i3d.InceptionI3d) -> None:
    seen = []
    hook = network.get_submodule("Mixed_5c").register_forward_hook(lambda _layer, _given, out: seen.append(out))
    segments = network.segments(clip(16, 64, 96))
    hook.remove()
    assert seen[0].shape == (1, 1024, 2, 2, 3)
    torch.testing.assert_close(segments, seen[0].mean(dim=(3, 4)).transpose(1, 2))
    assert segments.dtype == torch.float32
    assert segments.std() > 0


def test_clips_of_a_batch_know_nothing_of_each_other(network: i3d.InceptionI3d) -> None:
    batch = clip(9, 48, 48, batch=3)
    alone = torch.cat([network(one[None]) for one in batch])
    torch.testing.assert_close(network(batch), alone, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(alone[0], alone[1], rtol=1e-3)


def test_time_matters(network: i3d.InceptionI3d) -> None:
    given = clip(8, 48, 48)
    assert not torch.allclose(network(given), network(given.flip(2)), rtol=1e-3)


def test_bfloat16_is_finite_and_near(network: i3d.InceptionI3d) -> None:
    given = clip(8, 48, 48)
    exact = network(given)
    low = i3d.from_state(network.state_dict(), "here").bfloat16()
    found = low(given.bfloat16())
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert torch.nn.functional.cosine_similarity(found, exact).item() > 0.99
    assert low.classify(found).isfinite().all()


def test_both_ports_give_the_same_network(network: i3d.InceptionI3d) -> None:
    given, state = clip(8, 48, 48), published_state(network)
    exact = network(given)
    renamed = other_port(state)
    assert {"conv3d_1a_7x7.batch3d.running_var", "mixed_4f.branch_3.1.conv3d.weight"} <= renamed.keys()
    assert not renamed.keys() & state.keys()
    for form in (state, renamed, network.state_dict(), {f"module.{name}": t for name, t in renamed.items()}):
        loaded = i3d.from_state(form, "a file")
        torch.testing.assert_close(loaded(given), exact, rtol=0, atol=0)
        assert not loaded.training
        assert not any(p.requires_grad for p in loaded.parameters())


def test_other_classes_than_400(network: i3d.InceptionI3d) -> None:
    state = published_state(network)
    state["logits.conv3d.weight"], state["logits.conv3d.bias"] = torch.zeros(600, 1024, 1, 1, 1), torch.ones(600)
    assert i3d.from_state(state, "a file").classify(torch.ones(1, 1024)).tolist() == [[1.0] * 600]


def test_what_does_not_fit_is_listed(network: i3d.InceptionI3d) -> None:
    state = published_state(network)
    del state["Mixed_4d.b0.bn.bias"], state["logits.conv3d.bias"]
    state["layer1.0.weight"] = torch.zeros(3)
    state["Conv3d_1a_7x7.conv3d.weight"] = torch.zeros(64, 2, 7, 7, 7)
    with pytest.raises(ArtifactError) as caught:
        i3d.from_state(state, "flow.pt")
    for part in (
        "flow.pt holds no weights of Inception-I3D on RGB",
        "2 missing: Mixed_4d.b0.bn.bias, logits.conv3d.bias",
        "1 unknown: layer1.0.weight",
        "1 of another shape: Conv3d_1a_7x7.conv3d.weight (64, 2, 7, 7, 7), not (64, 3, 7, 7, 7)",
    ):
        assert part in caught.value.message
    with pytest.raises(ArtifactError, match=r"\b287\b.* Conv3d_1a_7x7\.bn\.bias.*\b279\b"):
        i3d.from_state({}, "nothing.pt")


def test_equal_seeds_give_equal_weights() -> None:
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(i3d.InceptionI3d(5).state_dict())
    assert all(torch.equal(one, other) for one, other in zip(made[0].values(), made[1].values(), strict=True))
