"""Random numbers, dropout and seeds.

Values cannot be compared with those of eager PyTorch. Rows check properties that do not depend
on them (types, shapes, loading); the other tests check the distribution: moments of many samples
within five standard errors, with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from onnx_aot.torch_compat import aten
from tests.ops.random.draws import (
    HALF,
    SHAPE,
    WIDE,
    Function,
    N,
    assert_moments,
    check_moments,
    drawn,
    hidden,
    like,
)
from tests.ops.rows import Row, check, floats, given, ints, parametrize, positive

pytestmark = pytest.mark.filterwarnings("ignore:the model was captured in training mode")

EMPTY = ({"n": 0},)


def of_sizes(target: Any, *before: Any, **options: Any) -> Callable[..., Any]:
    """Calls a target with the sizes of a tensor and hides its random values."""
    return lambda x: hidden(target(*before, list(x.shape), **options))


GENERATOR = {"generator": None}

SIZES = [
    # torch has no fake tensor kernel with dynamic sizes for the overloads that take a generator
    Row(
        target,
        (floats(2 if options is GENERATOR else "n", 3),),
        call=of_sizes(target, *before, **options),
        name=name,
    )
    for target, before, options, name in (
        (aten.rand.default, (), {}, ""),
        (aten.rand.default, (), {"dtype": WIDE}, "double"),
        (aten.rand.default, (), {"dtype": HALF}, "half"),
        (aten.rand.default, (), {"dtype": torch.bfloat16}, "bfloat16"),
        (aten.rand.generator, (), GENERATOR, ""),
        (aten.randn.default, (), {}, ""),
        (aten.randn.default, (), {"dtype": HALF}, "half"),
        (aten.randn.generator, (), GENERATOR, ""),
        (aten.randint.default, (5,), {}, ""),
        (aten.randint.default, (5,), {"dtype": torch.uint8}, "uint8"),
        (aten.randint.default, (2,), {"dtype": torch.bool}, "bool"),
        (aten.randint.default, (5,), {"dtype": torch.float32}, "float"),
        (aten.randint.generator, (5,), GENERATOR, ""),
        (aten.randint.low, (-3, 5), {}, ""),
        (aten.randint.low, (-(2**63), 2**63 - 1), {}, "all"),
        (aten.randint.low_generator, (-3, 5), GENERATOR, ""),
        (aten.normal.float_float, (1.0, 2.0), {}, ""),
    )
]

FIXED_SIZES = [
    Row(
        aten.rand.default,
        (),
        call=lambda s=sizes: hidden(aten.rand.default(s)),
        name=str(sizes),
    )
    for sizes in ((), (0, 2), (1,), (2, 3))
]

LIKE = [
    like(aten.rand_like.default, floats("n", 3)),
    like(aten.rand_like.default, floats("n", 3), dtype=WIDE, name="double"),
    like(aten.rand_like.default, floats("n", 3, dtype=torch.bfloat16), name="bfloat16"),
    like(aten.rand_like.default, ints("n", 3), dtype=torch.float32, name="of ints"),
    like(aten.rand_like.generator, floats("n", 3), **GENERATOR),
    like(aten.randn_like.default, floats("n", 3)),
    like(aten.randn_like.default, floats("n", 3, dtype=torch.bfloat16), name="bfloat16"),
    like(aten.randn_like.default, floats(), name="rank 0"),
    like(aten.randn_like.generator, floats("n", 3), **GENERATOR),
    like(aten.randint_like.default, floats("n", 3), 5),
    like(aten.randint_like.generator, ints("n", 3), 5, **GENERATOR),
    like(aten.randint_like.low_dtype, ints("n", 3), -5, 5),
    like(aten.randint_like.low_dtype, ints("n", 3), -5, 5, dtype=torch.int8, name="int8"),
    like(aten.randint_like.low_generator_dtype, ints("n", 3), -5, 5, **GENERATOR),
    like(aten.randint_like.Tensor, (ints("n", 3), ints(low=4, high=9))),
]

ELEMENTWISE = [
    *(
        like(target, floats("n", 3, dtype=dtype), *args, name=str(dtype))
        for target, args in (
            (aten.uniform.default, (-1.0, 2.0)),
            (aten.normal_functional.default, (1.0, 2.0)),
            (aten.log_normal.default, (0.1, 0.2)),
            (aten.exponential.default, (2.0,)),
            (aten.geometric.default, (0.3,)),
            (aten.cauchy.default, (1.0, 2.0)),
            (aten.random.default, ()),
            (aten.random.to, (7,)),
        )
        for dtype in (torch.float32, HALF, WIDE)
    ),
    like(aten.random.default, ints("n", 3), name="int"),
    like(aten.geometric.default, ints("n", 3), 0.3, name="int"),
    like(aten.bernoulli.default, floats("n", 3, low=0, high=1)),
    like(aten.bernoulli.default, floats("n", low=0, high=1, dtype=WIDE), name="double"),
    like(aten.bernoulli.p, floats("n", 3), 0.3),
    like(aten.bernoulli.p, ints("n", 3), 0.3, name="int"),
    like(aten.bernoulli.Tensor, (floats("n", 3), floats(3, low=0, high=1))),
    like(aten.normal.Tensor_float, floats("n", 3), 2.0),
    like(aten.normal.Tensor_float, floats("n", 3, dtype=HALF), 2.0, name="half"),
    Row(
        aten.normal.float_Tensor,
        (positive("n", 3),),
        call=lambda std: hidden(aten.normal.float_Tensor(1.0, std)),
    ),
    like(aten.normal.Tensor_Tensor, (floats("n", 1), positive("n", 3))),
    like(aten.normal.Tensor_Tensor, (floats("n", 1), positive(3)), name="both broadcast"),
]

CERTAIN = [
    Row(aten.bernoulli.default, (given(0.0, 1.0, 1.0, 0.0),), name="certain"),
    Row(aten.bernoulli.p, (floats("n", 3), 1.0), sizes=EMPTY, name="certain"),
    Row(aten.bernoulli.p, (floats("n", 3), 0.0), sizes=EMPTY, name="impossible"),
    Row(
        aten.randperm.default,
        (floats("n", 2),),
        call=lambda x: aten.randperm.default(x.shape[0]).sort()[0],
        sizes=EMPTY,
    ),
    Row(
        aten.randperm.default,
        (),
        call=lambda: aten.randperm.default(9, dtype=torch.int32).sort()[0],
        name="int32",
    ),
    Row(
        aten.randperm.generator,
        (),
        call=lambda: aten.randperm.generator(9, generator=None).sort()[0],
    ),
]

DROPOUT = [
    *(
        Row(
            target,
            (floats("n", 3, "m"), p, train),
            name=name,
            # eager PyTorch returns an unusual mask for an empty tensor
            sizes=() if target == aten.native_dropout.default else EMPTY,
        )
        for target in (
            aten.dropout.default,
            aten.alpha_dropout.default,
            aten.feature_dropout.default,
            aten.feature_alpha_dropout.default,
            aten.native_dropout.default,
        )
        for name, p, train in (("evaluation", 0.5, False), ("0", 0.0, True), ("1", 1.0, True))
    ),
    *(
        like(target, floats("n", 3, "m", dtype=dtype), 0.5, True, name=f"{dtype}")
        for target in (
            aten.dropout.default,
            aten.alpha_dropout.default,
            aten.feature_dropout.default,
            aten.feature_alpha_dropout.default,
            aten.native_dropout.default,
        )
        for dtype in (torch.float32, HALF, WIDE)
    ),
]

RRELU = [
    Row(aten.rrelu.default, (floats("n", 3),), sizes=EMPTY),
    Row(aten.rrelu.default, (floats("n", 3), 0.1, 0.2), name="slopes"),
    Row(aten.rrelu.default, (floats("n", 3), 0.2, 0.2, True), name="certain"),
    Row(aten.rrelu_with_noise_functional.default, (floats("n", 3), floats("n", 3)), sizes=EMPTY),
    Row(
        aten.rrelu_with_noise_functional.default,
        (floats("n", 3), floats("n", 3), 0.2, 0.2, True),
        name="certain",
    ),
]

ROWS = [
    *SIZES,
    *FIXED_SIZES,
    *LIKE,
    *ELEMENTWISE,
    *CERTAIN,
    *DROPOUT,
    *RRELU,
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


# --- distributions -------------------------------------------------------------------------------

MOMENTS: dict[str, tuple[Callable[..., Any], float, float, float]] = {
    # drawn values; mean, variance and kurtosis of the distribution
    "rand": (lambda: torch.rand(SHAPE), 1 / 2, 1 / 12, 9 / 5),
    "rand double": (lambda: torch.rand(SHAPE, dtype=WIDE), 1 / 2, 1 / 12, 9 / 5),
    "randn": (lambda: torch.randn(SHAPE), 0, 1, 3),
    "randn half": (lambda: torch.randn(SHAPE, dtype=HALF), 0, 1, 3),
    "randint": (lambda: torch.randint(-2, 3, SHAPE), 0, 2, 1.7),
    "normal": (lambda: torch.normal(1.5, 2.0, SHAPE), 1.5, 4, 3),
    "normal of tensors": (
        lambda: torch.normal(torch.full(SHAPE, 1.5), torch.full(SHAPE, 2.0)),
        1.5,
        4,
        3,
    ),
    "uniform_": (lambda: torch.empty(SHAPE).uniform_(-1, 2), 0.5, 9 / 12, 9 / 5),
    "normal_": (lambda: torch.empty(SHAPE).normal_(1, 3), 1, 9, 3),
    "exponential_": (lambda: torch.empty(SHAPE).exponential_(2), 0.5, 0.25, 9),
    "geometric_": (lambda: torch.empty(SHAPE).geometric_(0.25), 4, 12, 9.1),
    "log_normal_": (
        lambda: torch.empty(SHAPE).log_normal_(0, 0.5),
        math.exp(0.125),
        (math.exp(0.25) - 1) * math.exp(0.25),
        8.9,
    ),
    "bernoulli_": (lambda: torch.empty(SHAPE).bernoulli_(0.25), 0.25, 3 / 16, 7 / 3),
    "bernoulli_, default": (lambda: torch.empty(SHAPE).bernoulli_(), 0.5, 0.25, 1),
    "bernoulli": (lambda: torch.bernoulli(torch.full(SHAPE, 0.25)), 0.25, 3 / 16, 7 / 3),
    "random_": (lambda: torch.empty(SHAPE).random_(5), 2, 2, 1.7),
    "randperm": (lambda: torch.randperm(N)[: N // 2] / N, 1 / 2, 1 / 12, 9 / 5),
    "distributions.Normal": (
        lambda: torch.distributions.Normal(torch.zeros(SHAPE), 2.0, validate_args=False).rsample(),
        0,
        4,
        3,
    ),
    "distributions.Gumbel": (
        lambda: torch.distributions.Gumbel(
            torch.zeros(SHAPE), torch.ones(SHAPE), validate_args=False
        ).sample(),
        0.5772156649,
        math.pi**2 / 6,
        5.4,
    ),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name: str) -> None:
    check_moments(*MOMENTS[name])


def test_cauchy_has_its_quartiles() -> None:
    numbers = drawn(lambda: torch.empty(N).cauchy_(1.0, 2.0)).double()
    quartiles = torch.quantile(numbers, torch.tensor([0.25, 0.5, 0.75], dtype=WIDE))
    assert torch.allclose(quartiles, torch.tensor([-1.0, 1.0, 3.0], dtype=WIDE), atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, HALF, torch.bfloat16])
def test_rand_is_below_one(dtype: torch.dtype) -> None:
    numbers = drawn(lambda: torch.rand(20 * N, dtype=dtype))
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1


def test_exponentials_are_above_zero() -> None:
    assert float(drawn(lambda: torch.empty(20 * N).exponential_()).min()) > 0


def test_gumbel_softmax() -> None:
    logits = torch.tensor([0.0, math.log(2.0), 0.0]).expand(N, 3)
    chosen = drawn(lambda x: torch.nn.functional.gumbel_softmax(x, hard=True), logits)
    assert torch.allclose(chosen.mean(0), torch.tensor([0.25, 0.5, 0.25]), atol=0.015)


class TestDropout:
    def test_scales_what_it_keeps(self) -> None:
        answer = drawn(lambda x: torch.nn.functional.dropout(x, 0.25), torch.ones(100, 500))
        assert torch.allclose(answer[answer != 0], torch.tensor(4 / 3))
        assert_moments(answer, 1, 1 / 3, 7 / 3)

    def test_other_elements_in_each_run(self) -> None:
        x = torch.ones(3)
        program = onnx_aot.export(torch.nn.Dropout(0.5).train(), (x,), seed=3)
        runs = torch.stack([program(x)[0] for _ in range(64)])
        assert ((runs == 0).any(0) & (runs == 2).any(0)).all()

    def test_native_dropout_gives_the_mask(self) -> None:
        x = torch.ones(20, 30)
        program = onnx_aot.export(Function(lambda x: torch.native_dropout(x, 0.5, True)), (x,))
        answer, mask = program(x)
        assert (answer == 2.0 * mask).all()
        assert 0.2 < float(mask.float().mean()) < 0.8

    @pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d"])
    def test_feature_dropout_drops_whole_channels(self, name: str) -> None:
        x = torch.ones(20, 20, *[3, 4, 2][: int(name[-2])])
        channels = drawn(getattr(torch.nn.functional, name), x).flatten(2)
        assert (channels == channels[..., :1]).all()
        assert set(channels.unique().tolist()) == {0.0, 2.0}

    @pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
    def test_alpha_dropout_keeps_mean_and_variance(self, name: str) -> None:
        x = torch.randn(200, 500, 1, generator=torch.Generator().manual_seed(0))
        function = getattr(torch.nn.functional, name)
        answer = drawn(lambda x: function(x, 0.5, training=True), x)
        # Elements are replaced by SELU's negative limit; all are then scaled and shifted so that
        # mean and variance are preserved (Klambauer et al. 2017, section 3).
        limit, probability = -1.7580993408473766, 0.5
        scale = (probability * (1.0 + (1.0 - probability) * limit**2)) ** -0.5
        shift = -scale * limit * probability
        dropped = torch.isclose(answer, torch.tensor(scale * limit + shift))
        kept = torch.isclose(answer, scale * x + shift, atol=1e-6)
        assert (dropped | kept).all()
        assert abs(float(dropped.float().mean()) - probability) < 0.02
        assert abs(float(answer.mean())) < 0.05
        assert abs(float(answer.std()) - 1.0) < 0.05

    def test_feature_alpha_dropout_drops_whole_channels(self) -> None:
        x = torch.ones(20, 20, 3, 4)
        answer = drawn(lambda x: torch.nn.functional.feature_alpha_dropout(x, 0.5, True), x)
        channels = answer.flatten(2)
        assert (channels == channels[..., :1]).all()
        assert len(answer.unique()) == 2


def test_rrelu_in_training() -> None:
    answer = drawn(lambda x: torch.nn.functional.rrelu(x, 0.1, 0.3, True), -torch.ones(N))
    assert_moments(answer, -0.2, 0.04 / 12, 9 / 5)


# --- seeds ---------------------------------------------------------------------------------------


def twice() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(100), torch.rand(100)


class TestSeed:
    def test_equal_seeds_give_equal_numbers(self) -> None:
        programs = [onnx_aot.export(Function(twice), seed=seed) for seed in (5, 5, 6, -5)]
        first, again, other, negative = (program()[0] for program in programs)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert not torch.equal(first, negative)

    def test_each_node_draws_its_own(self) -> None:
        one, two = onnx_aot.export(Function(twice), seed=5)()
        assert abs(float(one[0] - two[0])) > 1e-3
        assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 0.5

    def test_each_run_draws_others(self) -> None:
        program = onnx_aot.export(Function(twice), seed=5)
        assert not torch.equal(program()[0], program()[0])

    def test_every_random_node_has_a_seed(self) -> None:
        def everything(x: torch.Tensor) -> Any:
            return (
                torch.rand(2),
                torch.randn_like(x),
                torch.multinomial(x, 2, True),
                torch.poisson(x),
                torch.nn.functional.dropout(x),
            )

        program = onnx_aot.export(Function(everything), (torch.ones(3, 4),), seed=5)
        seeds = [
            node.attributes["seed"].as_float()
            for graph in (program.model.graph, *program.model.graph.subgraphs())
            for node in graph
            if node.op_type.startswith("Random") or node.op_type == "Multinomial"
        ]
        assert len(seeds) == len(set(seeds)) >= 7

    def test_no_seed_no_attribute(self) -> None:
        program = onnx_aot.export(Function(twice))
        assert not any("seed" in node.attributes for node in program.model.graph)

    @pytest.mark.parametrize("seed", [1.5, True, "1"])
    def test_other_seeds_are_refused(self, seed: Any) -> None:
        with pytest.raises(InvalidOptionError, match="seed"):
            onnx_aot.export(Function(twice), seed=seed)
