"""DECL: regression and hinge, the falling number of negatives, and what a noisy pair means."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from smallbatch import SIZE, batch, make

from ccr_cli.losses.decl import dynamic_hinge, evidential_mse, hard_negatives
from ccr_cli.losses.evidential import evidence
from ccr_cli.methods import decl
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.train.state import save_tensors


def test_terms_are_those_of_the_equations() -> None:
    options = {"kl_weight": 0.1, "hinge_weight": 3.0, "evidential_weight": 0.5, "alpha": 0.25}
    method, given = make("decl", **options, batch_size=SIZE, eta=1.0, mu=2), batch()
    terms = method.losses(given)
    for view, text, weight in (("vs", given.source, 1.0), ("vt", given.target, 0.25)):
        sim = method.embed_visual(given.visual) @ method.embed_text(text).T
        mse = evidential_mse(evidence(sim), torch.ones(SIZE), kl_weight=0.1).mean()
        torch.testing.assert_close(terms[f"evidential_{view}"], weight * 0.5 * mse)
        hinge = dynamic_hinge(sim.tanh(), SIZE - 1).mean()  # the first step: one negative less than the batch
        torch.testing.assert_close(terms[f"hinge_{view}"], weight * 3 * hinge)


def test_negatives_grow_fewer_with_every_step_and_the_count_is_saved(tmp_path: Path) -> None:
    method, given = make("decl", batch_size=SIZE, eta=1.0, mu=2), batch()
    values = [method.losses(given)["hinge_vs"].item() for _ in range(8)]
    assert values[0] < values[2] < values[5] == values[7], "the hinge does not harden to its bound"
    save_tensors(tmp_path / "model.safetensors", method.state_dict())
    again = make("decl", batch_size=SIZE, eta=1.0, mu=2)
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert int(again.step) == 8
    assert again.losses(given)["hinge_vs"].item() == values[7]


def test_batches_that_make_one_step_have_one_number_of_negatives() -> None:
    given = batch()

    def values(**options: int) -> list[float]:
        method = make("decl", batch_size=SIZE, eta=1.0, mu=2, **options)
        return [method.losses(given)["hinge_vs"].item() for _ in range(4)]

    a, b, *_ = values()
    assert a < b and values(accumulate=2) == [a, a, b, b]


def test_the_published_number_of_negatives() -> None:
    c = configure(decl.Config, decl.Method.PRESETS["paper"], "decl")
    falls = [hard_negatives(step, first=c.batch_size, least=c.mu, rate=c.eta) for step in (1, 2000, 4919, 4920)]
    assert falls == [127, 78, 5, 5]
    assert c.hinge_weight == pytest.approx(0.8 * 128)  # lambda_1 and a sum over the batch


def test_terms_can_be_switched_off() -> None:
    given = batch()
    assert set(make("decl", evidential_weight=0.0).losses(given)) == {"hinge_vs", "hinge_vt"}
    assert set(make("decl", hinge_weight=0.0, alpha=0.0).losses(given)) == {"evidential_vs"}


def test_pairs_of_weight_zero_are_neither_positive_nor_negative() -> None:
    p = torch.tensor([1.0] * 5 + [0.0] * 3)
    with_noise, without = (make("decl").losses(given) for given in (batch(p=p), batch(5)))
    for name, value in without.items():
        torch.testing.assert_close(with_noise[name], value)


def test_the_papers_noisy_pair_has_no_match_and_stays_a_negative_of_others() -> None:
    p = torch.tensor([1.0] * 5 + [0.0] * 3)
    method, given = make("decl", noisy_target="zero", kl_weight=0.1), batch(p=p)
    terms = method.losses(given)
    sim = method.embed_visual(given.visual) @ method.embed_text(given.source).T
    mse = evidential_mse(evidence(sim), p, kl_weight=0.1, noisy_target="zero").mean()
    torch.testing.assert_close(terms["evidential_vs"], mse)
    hinge = (p * dynamic_hinge(sim.tanh(), 127)).sum() / SIZE
    torch.testing.assert_close(terms["hinge_vs"], method.config.hinge_weight * hinge)


def test_the_papers_labels_speak_after_the_warm_up() -> None:
    paper = {"judge": "argmax", "judge_side": "cross_modal", "noisy_target": "zero"}
    during, after = (make("decl", **paper).losses(batch(judged=judged)) for judged in (False, True))
    assert not torch.equal(during["evidential_vt"], after["evidential_vt"])
    assert after["hinge_vt"] < during["hinge_vt"]


def test_uncertainty_is_that_of_the_candidates() -> None:
    sim = torch.tensor([[0.3, -0.2, 0.1]])
    e = torch.exp(torch.tanh(sim) / 0.1)[0]
    two, whole = (make("decl", candidates=k).uncertainty(sim).item() for k in (2, 0))
    assert two == pytest.approx(2 / (2 + e[0] + e[2]).item())
    assert whole == pytest.approx(3 / (3 + e.sum()).item())


def test_ranges_are_checked() -> None:
    for wrong in ({"tau": 0.0}, {"mu": 0}, {"kl_weight": -1.0}, {"eta": -1.0}):
        ((option, value),) = wrong.items()
        with pytest.raises(ValueError, match=rf"^{option} .*{value}$"):
            decl.Config(**wrong)
