"""What every training method has to keep; a new file in methods/ is held to it with no edit here.

Shape suffixes: B triplets in a batch, V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import smallbatch
import torch
import toy
from safetensors.torch import load_file
from toy import Chain
from transformers import BertConfig, BertModel

from ccr_cli import registry
from ccr_cli.artifacts import base as records
from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import NgramTokenizer, Tokens
from ccr_cli.errors import UsageError
from ccr_cli.methods import base
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.text import TransformerTextEncoder, build_text_encoder
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.train.state import save_tensors

METHODS = registry.names("methods")
TRAINED = [name for name in METHODS if registry.load("methods", name).Method.TRAINED]
PRESETS = [(name, p) for name in METHODS for p in registry.load("methods", name).Method.PRESETS]
SMALL: dict[str, Any] = {"buckets": 512, "dim": 16, "dropout": 0.0, "text_dropout": 0.0}
VISUAL_DIM = SMALL["dim"]
SOURCE = [f"{colour} {shape}" for colour, shape in zip(toy.COLOURS, itertools.cycle(toy.SHAPES), strict=False)]
TARGET = [f"{toy.SHAPES[shape]} {toy.COLOURS[colour]}" for colour, shape in (text.split() for text in SOURCE)]
BACK = [f"the {shape} is {colour}" for colour, shape in (text.split() for text in SOURCE)]
SURE = [1.0] * len(SOURCE)
WITHIN = {"kl_weight"}
"""Those that weigh a part of a term."""
WEIGHT = re.compile(r"(.*_weight|alpha|beta)$")
"""Options that weigh terms of a loss."""

every_method = pytest.mark.parametrize("name", METHODS)
every_trained_method = pytest.mark.parametrize("name", TRAINED)


def make(name: str, seed: int = 0, **options: Any) -> base.Method:
    """A small model of a method, without dropout."""
    return make_with(None, name, seed, **options)


def make_with(text: base.TextEncoder | None, name: str, seed: int = 0, **options: Any) -> base.Method:
    """The same with a text encoder of one's own."""
    module = registry.load("methods", name)
    config = configure(module.Config, {**SMALL, **options}, name)
    torch.manual_seed(seed)
    text = text or build_text_encoder("ngram", buckets=config.buckets, dim=config.dim)
    method: base.Method = module.Method(config, VISUAL_DIM, text)
    method.start_epoch(1)
    return method.train()


def calibrated(method: base.Method) -> base.Method:
    """The method in evaluation mode, after queries of which the more similar are the more often right."""
    first_Q = torch.linspace(-0.2, 0.8, 40)
    method.calibrate(torch.stack([first_Q, first_Q / 2 - 0.1], dim=1), torch.arange(40) % 8 < torch.arange(40) // 5)
    return method.eval()


def tokens(texts: list[str]) -> Tokens:
    return NgramTokenizer(buckets=SMALL["buckets"]).encode(texts).select(torch.arange(len(texts)))


def batch(
    source: list[str] = SOURCE,
    target: list[str] = TARGET,
    items: list[int] | None = None,
    clean: list[float] | None = None,
    judged: bool = True,
) -> base.Batch:
    """A batch in which equal items have equal features, of one to three rows, and no side is wholly believed."""
    item_B = torch.tensor(items or list(range(len(source))))
    features = torch.randn(64, VISUAL_DIM, generator=torch.Generator().manual_seed(5))
    offsets = torch.tensor([0, *itertools.accumulate(1 + (item + 1) % 3 for item in range(32))])
    p_VS, p_VT, p_ST = torch.tensor([clean] * 3) if clean else torch.linspace(0.35, 0.95, 3 * len(source)).view(3, -1)
    return base.Batch(
        Frames(features[: offsets[-1]], offsets).select(item_B),
        tokens(source),
        tokens(target),
        item_B,
        base.Belief(p_VS, p_VT, p_ST),
        judged,
        back=tokens(BACK[: len(source)]),
        label_B=item_B,
        teacher_BD=torch.eye(VISUAL_DIM)[: len(source)],
    )


def reads_translations(name: str) -> bool:
    """Whether the loss depends on the translations at all: what is not read cannot be learned."""
    return bool(total(make(name).losses(batch())) != total(make(name).losses(batch(target=SOURCE))))


def total(terms: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack([value.float() for value in terms.values()]).sum()


def gradients(method: base.Method) -> dict[str, torch.Tensor]:
    found = {name: weight.grad for name, weight in method.named_parameters() if weight.requires_grad}
    missing = [name for name, grad in found.items() if grad is None]
    assert not missing, f"no gradient reaches {missing}"
    return {name: grad.to_dense() for name, grad in found.items() if grad is not None}


@every_trained_method
def test_every_parameter_gets_gradient(name: str) -> None:
    method = make(name)
    total(method.losses(batch())).backward()  # type: ignore[no-untyped-call]
    for weight, grad in gradients(method).items():
        assert grad.isfinite().all() and grad.abs().sum() > 0, weight


@pytest.mark.parametrize("visual", ["transformer", "gpo"])
@pytest.mark.parametrize("name", ["infonce", "disncl", "tcl", "fume"])
def test_every_parameter_gets_gradient_however_frames_become_one(name: str, visual: str) -> None:
    given, method = batch(), make(name, visual=visual, visual_drop=0.0)
    assert "frames" in method.config.needs()
    assert torch.equal(total(method.losses(given)), total(make(name, visual=visual, visual_drop=0.0).losses(given)))
    total(method.losses(given)).backward()  # type: ignore[no-untyped-call]
    for weight, grad in gradients(method).items():
        assert grad.isfinite().all() and grad.abs().sum() > 0, weight
    method.eval()
    together_VD = method.embed_visual(given.visual)
    for v in range(len(given.visual)):
        alone_VD = method.embed_visual(given.visual.select(torch.tensor([v])))
        torch.testing.assert_close(alone_VD[0], together_VD[v], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("infonce", {"visual": "transformer", "visual_heads": 3}, r"visual_heads .*\b3\b.*\b16$"),
        ("infonce", {"visual_drop": 1.0}, r"visual_drop .*\b1\.0$"),
        ("nrccr", {"visual": "gpo"}, "frame_block=false"),
    ],
)
def test_how_frames_become_one_is_checked(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(name, **options)


@every_trained_method
def test_every_parameter_of_a_hub_encoder_gets_gradient(name: str) -> None:
    size = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    bert = BertModel(BertConfig(vocab_size=SMALL["buckets"], hidden_dropout_prob=0.0, **size))
    method = make_with(TransformerTextEncoder(bert), name, text_encoder="bert")
    total(method.losses(batch())).backward()  # type: ignore[no-untyped-call]
    for weight, grad in gradients(method).items():
        # a softmax does not feel what is added to all keys
        assert grad.isfinite().all() and (grad.abs().sum() > 0 or weight.endswith("key.bias")), weight


def weights() -> list[tuple[str, str]]:
    """Methods with each of their options that weigh something."""
    fields = [(name, f.name) for name in METHODS for f in dataclasses.fields(registry.load("methods", name).Config)]
    return [(name, field) for name, field in fields if WEIGHT.match(field)]


@pytest.mark.parametrize(("name", "option"), weights())
def test_what_weighs_nothing_is_neither_computed_nor_built(name: str, option: str) -> None:
    given = batch()
    settings: list[dict[str, Any]] = [{option: weight} for weight in (1.0, 0.0)]
    on, off = (make(name, **options) for options in settings)
    whole, rest = on.losses(given), off.losses(given)
    assert rest.keys() <= whole.keys() and all(value != 0 for value in rest.values())
    assert not torch.equal(total(whole), total(rest))
    if option not in WITHIN:
        assert rest.keys() < whole.keys()
    total(rest).backward()  # type: ignore[no-untyped-call]
    assert all(grad.abs().sum() > 0 for grad in gradients(off).values())


@every_trained_method
def test_loss_terms_are_named_scalars_and_do_not_change_the_batch(name: str) -> None:
    method, given = make(name), batch()
    before = given.visual.rows_ND.clone(), given.p.VT.clone()
    terms = method.losses(given)
    assert terms and all(value.shape == () for value in terms.values())
    assert torch.equal(given.visual.rows_ND, before[0]) and torch.equal(given.p.VT, before[1])


@every_trained_method
def test_pairs_below_the_threshold_count_as_pairs_of_probability_zero(name: str) -> None:
    def loss(clean: list[float], least: float) -> torch.Tensor:
        method = make(name, judge="none", drop_below=least)
        torch.manual_seed(1)  # for dropout
        return total(method.losses(batch(clean=clean)))

    rest = [*[0.9] * (len(SOURCE) - 2), 0.5]
    nothing = 0.1 if name == "uml" else 0.0  # its L_u and L_c keep pairs of probability 0 as rivals unless told to drop
    assert loss([*rest, 0.3], least=0.5) == loss([*rest, 0.0], least=nothing)
    if reads_translations(name) and name not in ("cream", "in2r", "l2rm", "ncr"):  # which divide at 0.5 themselves
        assert loss([*rest, 0.3], least=0.5) != loss([*rest, 0.3], least=0.0)


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("infonce", ["infonce_vs", "infonce_vt"]),
        ("uml", ["evidential_vs", "evidential_vt", "consistency", "anchor", "cross_lingual"]),
    ],
)
def test_pairs_below_the_threshold_are_no_rivals(name: str, terms: list[str]) -> None:
    clean = [*[1.0] * (len(SOURCE) - 1), 0.3]
    rest = slice(0, len(SOURCE) - 1)
    found = make(name, drop_below=0.5).eval().losses(batch(clean=clean))
    without = make(name).eval().losses(batch(SOURCE[rest], TARGET[rest], clean=clean[rest]))
    for term in terms:
        assert found[term].item() == pytest.approx(without[term].item(), rel=1e-5), term


@pytest.mark.slow
@every_trained_method
def test_overfits_eight_pairs(name: str) -> None:
    method = make(name)
    given = batch(clean=SURE, judged=False)
    dense, sparse = smallbatch.trained(method)
    optimizers = [torch.optim.Adam(dense, lr=0.02), torch.optim.SparseAdam(sparse, lr=0.02)]
    losses = []
    for _ in range(80):
        loss = total(method.losses(given))
        losses.append(loss.item())
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
    assert losses[-1] < losses[0]
    method.eval()
    with torch.no_grad():
        v_VD = method.embed_visual(given.visual)
        for texts in (given.source, given.target) if reads_translations(name) else (given.source,):
            t_TD = method.embed_text(texts)
            for query_QD, gallery_GD in ((t_TD, v_VD), (v_VD, t_TD)):
                sim_QG, _ = method.score(query_QD, gallery_GD)
                assert torch.equal(sim_QG.argmax(dim=1), torch.arange(len(SOURCE))), "R@1 is not 100"


@every_method
@pytest.mark.parametrize("head", ["identity", "residual"])
def test_an_aligned_head_begins_with_the_vectors_as_they_are(name: str, head: str) -> None:
    if name in ("nrccr", "fume", "disncl") or (name, head) == ("pretrained", "residual"):
        with pytest.raises(UsageError, match=f"head={head}"):
            make(name, head=head)
        return
    method, given = make(name, head=head).eval(), batch()
    with torch.no_grad():
        found_VT = method.embed_visual(given.visual) @ method.embed_text(given.target).T
        x_VD = torch.stack([given.visual.select(torch.tensor([v])).rows_ND.mean(0) for v in range(len(SOURCE))])
        models = [part for part in method.modules() if isinstance(part, DualEncoder)]  # each has a table of its own
        wanted = [cosines(x_VD, model.text_encoder(given.target)) for model in models]
    torch.testing.assert_close(found_VT, torch.stack(wanted).mean(0), atol=1e-6, rtol=0)


def cosines(x_VD: torch.Tensor, y_TD: torch.Tensor) -> torch.Tensor:
    return torch.cosine_similarity(x_VD[:, None], y_TD[None], dim=2)


@pytest.mark.parametrize(
    "name",
    [name if name in ("infonce", "tcl") else pytest.param(name, marks=pytest.mark.slow) for name in TRAINED],
)
def test_same_seed_same_bytes(name: str, workspace: Chain) -> None:
    def train(label: str, seed: int) -> records.Artifact:
        options = ("--method", name, "--epochs", "2", "--noise", "0.4", *toy.SMALL)
        return toy.ok(
            "train", *options, "--noise-seed", "0", "--seed", str(seed), "--name", label, workspace=workspace.root
        ).made

    toy.teach(name, workspace.root)
    first, again, other = train("first", 0), train("again", 0), train("other", 1)
    assert first.files == again.files and first.id == again.id
    weights = {a.name: a.file("model.safetensors").read_bytes() for a in (first, other)}
    assert weights["first"] != weights["other"]


@every_method
def test_saved_and_loaded_gives_the_same_scores(name: str, tmp_path: Path) -> None:
    first, second = calibrated(make(name, seed=1)), make(name, seed=2).eval()
    given = batch()

    def scores(method: base.Method) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            sim, unc = method.score(method.embed_text(given.target), method.embed_visual(given.visual))
            return sim, torch.zeros(()) if unc is None else unc

    sims, uncs = zip(scores(first), scores(second), strict=True)
    assert not torch.equal(*sims) and (not uncs[0].any() or not torch.equal(*uncs))
    save_tensors(tmp_path / "model.safetensors", first.state_dict())
    second.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert all(torch.equal(one, two) for one, two in zip(scores(first), scores(second), strict=True))


@every_method
def test_embeddings_are_unit_vectors(name: str) -> None:
    method, given = make(name).eval(), batch()
    for out_BD in (method.embed_visual(given.visual), method.embed_text(given.source)):
        torch.testing.assert_close(out_BD.norm(dim=-1), torch.ones(len(SOURCE)))


@every_method
@pytest.mark.parametrize("gallery", [1, 2, 300])
def test_uncertainty_lies_between_0_and_1_or_there_is_none(name: str, gallery: int) -> None:
    method = calibrated(make(name))
    g_GD = torch.nn.functional.normalize(torch.randn(gallery, SMALL["dim"]), dim=-1)
    q_QD = torch.cat([g_GD[:1], -g_GD[:1], torch.zeros(1, SMALL["dim"])])
    sim_QG, unc_Q = method.score(q_QD, g_GD)
    assert sim_QG.shape == (3, gallery)
    torch.testing.assert_close(sim_QG, q_QD @ g_GD.T)
    assert (unc_Q is None) == (method.score(q_QD[:1], g_GD)[1] is None)
    if unc_Q is not None:
        assert unc_Q.shape == (3,) and unc_Q.isfinite().all()
        assert (unc_Q >= 0).all() and (unc_Q <= 1).all()
        elsewhere_Q = method.score(q_QD, -g_GD)[1]
        assert elsewhere_Q is not None
        if method.uncertainty_scope() != "query":
            assert not torch.equal(unc_Q, elsewhere_Q)
            assert unc_Q[0] <= unc_Q[1], "a query that matches is not the less certain one"


@every_trained_method
@pytest.mark.parametrize(
    ("judged", "dtype"),
    [
        pytest.param(False, torch.float32, id="not judged", marks=pytest.mark.slow),
        pytest.param(True, torch.float32, id="judged"),
        pytest.param(False, torch.bfloat16, id="not judged, bfloat16", marks=pytest.mark.slow),
        pytest.param(True, torch.bfloat16, id="judged, bfloat16"),
    ],
)
@pytest.mark.parametrize(
    ("source", "target", "items", "clean"),
    [
        pytest.param(SOURCE, TARGET, None, None, id="ordinary"),
        pytest.param(["red ring"] * 8, ["anillo rojo"] * 8, None, None, id="identical captions"),
        pytest.param(SOURCE, TARGET, [0, 0, 1, 2, 3, 4, 5, 6], None, id="two captions of one item"),
        pytest.param(SOURCE, TARGET, [3] * 8, None, id="all captions of one item"),
        pytest.param(SOURCE[:1], TARGET[:1], None, None, id="batch of one"),
        pytest.param(SOURCE[:2], TARGET[:2], None, None, id="batch of two"),
        pytest.param(SOURCE[:2], TARGET[:2], [1, 1], None, id="batch of two of one item"),
        pytest.param(SOURCE, TARGET, None, [0.0] * 8, id="all noisy"),
        pytest.param(SOURCE, TARGET, None, [0.0, 1.0, 0.5] + [1.0] * 5, id="some noisy"),
        pytest.param([" ", "red"], ["?", "rojo"], None, None, id="captions without words"),
    ],
)
def test_terms_and_gradients_are_finite(
    name: str,
    source: list[str],
    target: list[str],
    items: list[int] | None,
    clean: list[float] | None,
    judged: bool,
    dtype: torch.dtype,
) -> None:
    method = make(name)
    given = batch(source, target, items, clean, judged)
    with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
        terms = method.losses(given)
    assert all(value.isfinite() for value in terms.values()), terms
    total(terms).backward()  # type: ignore[no-untyped-call]
    for weight, grad in gradients(method).items():
        assert grad.isfinite().all(), weight


@pytest.mark.parametrize(("name", "preset"), PRESETS, ids=["-".join(p) for p in PRESETS])
def test_presets_construct_and_give_losses(name: str, preset: str) -> None:
    settings = registry.load("methods", name).Method.PRESETS[preset]
    assert settings["table_lr"] == settings["encoder_lr"] == settings["lr"], "a paper has one rate"
    method = make(name, **{**settings, **SMALL, "text_encoder": "ngram"})
    assert all(value.isfinite() for value in method.losses(batch()).values())


@every_method
def test_options_are_frozen_and_documented(name: str) -> None:
    config: Any = registry.load("methods", name).Config
    assert base.Config in config.__mro__
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().epochs = 3
    documented = {field for each in config.__mro__ if dataclasses.is_dataclass(each) for field in _documented(each)}
    assert {f.name for f in dataclasses.fields(config)} - documented == set()


def _documented(config: Any) -> set[str]:
    """Fields of a class, its own ones, that a docstring follows."""
    (body,) = [node.body for node in ast.parse(inspect.getsource(config)).body if isinstance(node, ast.ClassDef)]
    found = set()
    for field, after in itertools.pairwise(body):
        text = after.value if isinstance(after, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            assert isinstance(field.target, ast.Name) and text.value.strip()
            found.add(field.target.id)
    return found


@every_method
def test_what_cannot_be_negative_is_refused(name: str) -> None:
    config = registry.load("methods", name).Config
    numbers = r"\w+_weight|alpha|beta(_\d)?|phi|margin|schedule|eta|kl_rate|candidates"
    for option in (field.name for field in dataclasses.fields(config) if re.fullmatch(numbers, field.name)):
        with pytest.raises(UsageError, match=rf"\b{option} .*-1"):
            configure(config, {option: "-1"}, name)


@every_method
def test_an_unknown_option_is_refused_with_the_known_ones(name: str, sources: Chain) -> None:
    done = sources.ccr("train", "--method", name, "--set", "nonsense=1", "--device", "cpu")
    assert done.code == 2 and done.out == ""
    assert f" {name} " in done.err and "'nonsense'" in done.err
    for field in dataclasses.fields(registry.load("methods", name).Config):
        assert field.name in done.err
    assert not (sources.root / "runs").exists()


@every_method
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("epochs=x", "expected a whole number"),
        ("lr=-1", "lr > 0"),
        ("judge=nobody", "judges: argmax"),
        ("judge_side=left", "expected one of cross_lingual"),
        ("batch_size", "expected key=value"),
    ],
)
def test_a_wrong_value_is_refused(name: str, option: str, message: str, sources: Chain) -> None:
    done = sources.ccr("train", "--method", name, "--set", option, "--device", "cpu")
    assert done.code == 2 and message in done.err, done.err
