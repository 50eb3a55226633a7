"""Instructions that call layers of the module: products, convolutions, norms, recurrent layers."""

from __future__ import annotations

import torch

from tests.properties.choices import Choices, DoesNotFitError
from tests.properties.instruction import Instruction, never

__all__ = ["LAYERS"]

ACTIVATIONS = (
    *("ReLU", "ELU", "SELU", "GELU", "SiLU", "Mish", "Softplus", "Softsign", "Tanhshrink"),
    *("Hardswish", "Hardsigmoid", "Hardtanh", "LeakyReLU", "LogSigmoid", "CELU", "ReLU6", "PReLU"),
    *("Softshrink", "Hardshrink", "Tanh", "Sigmoid", "Identity"),
)
PADDING_MODES = ("zeros", "zeros", "zeros", "circular", "reflect", "replicate")


def _linear(c: Choices) -> str:
    x, size, _ = c.features((1, 2, 3, 4), -1)
    wide, bias = c.between(1, 5), c.of("", "", ", bias=False")
    form = c.of(
        f"nn.Linear({size}, {wide}{bias})",
        f"nn.Sequential(nn.Linear({size}, {wide}), nn.{c.of(*ACTIVATIONS)}())",
        f"nn.Sequential(nn.Linear({size}, {wide}), nn.Dropout(0.0), nn.Linear({wide}, {size}))",
        f"nn.ModuleList([nn.Linear({size}, {wide}), nn.Linear({size}, {wide})])",
    )
    layer = c.layer(form)
    if "ModuleList" in form:
        return c.of(f"sum(layer({x}) for layer in {layer})", f"{layer}[{c.of(0, -1)}]({x})")
    return f"{layer}({x})"


def _shared(c: Choices) -> str:
    """One layer that runs twice, so that its weights are read twice."""
    x, size, _ = c.features((1, 2, 3), -1)
    layer = c.layer(f"nn.Linear({size}, {size})")
    return c.of(f"{layer}({layer}({x}))", f"{layer}({x}) + {layer}({x} * 2)")


def _activation(c: Choices) -> str:
    x = c.floats(rank=1)
    if x.dtype != torch.float32:
        raise DoesNotFitError
    axis = c.axis(x)
    name = c.of(*ACTIVATIONS, "Softmax", "LogSoftmax", "Softmin", "Flatten", "Dropout", "Threshold")
    options = {
        "Softmax": f"{axis}",
        "LogSoftmax": f"{axis}",
        "Softmin": f"{axis}",
        "Flatten": f"{c.of(0, 1)}",
        "Dropout": "0.0",
        "Threshold": "0.5, 2.0",
    }.get(name, "")
    return f"{c.layer(f'nn.{name}({options})')}({x.name})"


def _convolution(c: Choices) -> str:
    spatial = c.of(1, 1, 2, 2, 3)
    x, size, _ = c.features((spatial + 1, spatial + 2), -spatial - 1)
    groups = c.of(1, 1, size)
    wide = groups * c.between(1, 3) if groups == 1 else groups * c.between(1, 2)
    options = [f"{size}, {wide}, {c.between(1, 3)}", f"stride={c.of(1, 1, 2)}", f"groups={groups}"]
    if c.between(0, 3) == 0:
        options += [f"dilation={c.between(1, 2)}"]
    if c.between(0, 3) == 0:
        options += ["bias=False"]
    if c.between(0, 2) == 0:
        more = f"padding={c.between(0, 1)}, output_padding={c.of(0, 0, 1)}"
        layer = f"nn.ConvTranspose{spatial}d({', '.join(options)}, {more})"
    else:
        padding_mode = c.of(*PADDING_MODES)
        padding = c.of("0", "1", "2", "'same'") if "stride=1" in options else c.of("0", "1")
        more = f"padding={padding}, padding_mode='{padding_mode}'"
        layer = f"nn.Conv{spatial}d({', '.join(options)}, {more})"
    return f"{c.layer(layer)}({x})"


def _norm(c: Choices) -> str:
    form = c.of("layer", "rms", "batch", "batch", "group", "instance")
    if form in ("layer", "rms"):
        x, size, _ = c.features((1, 2, 3), -1)
        name = "LayerNorm" if form == "layer" else "RMSNorm"
        options = c.of("", ", eps=1e-3", ", elementwise_affine=False")
        return f"{c.layer(f'nn.{name}({size}{options})')}({x})"
    x, size, value = c.features((2, 3, 4), 1)
    affine = c.of("True", "False")
    if form == "group":
        groups = c.of(1, size)
        return f"{c.layer(f'nn.GroupNorm({groups}, {size}, affine={affine})')}({x})"
    if form == "instance":
        if value.rank < 3:
            raise DoesNotFitError
        layer = f"nn.InstanceNorm{value.rank - 2}d({size}, affine={affine})"
        return f"{c.layer(layer)}({x})"
    # momentum=None in training mode reads the number of batches, which the export refuses
    options = c.of("", ", affine=False", ", track_running_stats=False", ", momentum=0.3")
    rank = 1 if value.rank < 4 else 2
    return f"{c.layer(f'nn.BatchNorm{rank}d({size}{options})')}({x})"


def _pooling(c: Choices) -> str:
    spatial = c.of(1, 1, 2)
    x = c.tensor(lambda v: v.dtype == torch.float32 and v.rank in (spatial + 1, spatial + 2))
    if not c.scope.nonempty(x):
        raise DoesNotFitError
    ceil = c.of("", "", ", ceil_mode=True")
    kernel, stride, padding = c.between(2, 3), c.between(1, 2), c.between(0, 1)
    form = c.of(
        f"nn.MaxPool{spatial}d({kernel}, {stride}, {padding}{ceil})",
        f"nn.MaxPool{spatial}d({kernel}, 1, dilation={c.between(1, 2)}{ceil})",
        f"nn.AvgPool{spatial}d({kernel}, {stride}, {padding}{ceil})",
        f"nn.AvgPool{spatial}d({kernel}, {stride}, {padding}, count_include_pad=False)",
        f"nn.LPPool{spatial}d(2, {kernel})",
        f"nn.AdaptiveAvgPool{spatial}d({c.between(1, 2)})",
        f"nn.AdaptiveMaxPool{spatial}d(1)",
        f"nn.MaxPool{spatial}d({kernel}, {stride}, return_indices=True)",
    )
    if "return_indices" in form:
        return f"{c.layer(form)}({x.name})[{c.of(0, 1)}]"
    return f"{c.layer(form)}({x.name})"


def _recurrent(c: Choices) -> str:
    x, size, value = c.features((2, 3), -1)
    kind, hidden, layers = c.of("LSTM", "GRU", "RNN"), c.between(1, 4), c.of(1, 1, 2)
    both, first = c.of(True, False), c.of(True, False)
    options = f"{size}, {hidden}, {layers}, batch_first={first}, bidirectional={both}"
    if kind == "RNN":
        options += f", nonlinearity='{c.of('tanh', 'relu')}'"
    layer, state = c.layer(f"nn.{kind}({options})"), ""
    if c.between(0, 2) == 0:
        batch = f"{value.name}.shape[{0 if first else 1}], " if value.rank == 3 else ""
        if "movedim" in x:
            raise DoesNotFitError
        made = f"torch.ones({layers * (1 + both)}, {batch}{hidden})"
        state = f", ({made}, {made} / 2)" if kind == "LSTM" else f", {made}"
    if kind == "LSTM":
        return f"{layer}({x}{state}){c.of('[0]', '[1][0]', '[1][1]')}"
    return f"{layer}({x}{state})[{c.of(0, 1)}]"


def _cell(c: Choices) -> str:
    x, size, _ = c.features((1, 2), -1)
    kind, hidden = c.of("LSTMCell", "GRUCell", "RNNCell"), c.between(1, 4)
    layer = c.layer(f"nn.{kind}({size}, {hidden})")
    if kind == "LSTMCell":
        return f"{layer}({x}, {layer}({x}))[{c.of(0, 1)}]"
    return f"{layer}({x}, {layer}({x}))"


def _attention(c: Choices) -> str:
    x, size, value = c.features((2, 3), -1)
    heads = c.of(*(h for h in range(1, size + 1) if size % h == 0))
    first = c.of(True, False)
    form = c.between(0, 3)
    if form == 0:
        before = c.of(True, False)
        layer = c.layer(
            f"nn.TransformerEncoderLayer({size}, {heads}, 4, 0.0, batch_first={first}, "
            f"norm_first={before})"
        )
        return f"{layer}({x})"
    options = c.of("", ", bias=False", ", add_bias_kv=True", ", add_zero_attn=True")
    layer = c.layer(f"nn.MultiheadAttention({size}, {heads}, batch_first={first}{options})")
    if form == 1:
        return f"{layer}({x}, {x}, {x})[{c.of(0, 1)}]"
    if form == 2 and "movedim" not in x:
        axis = 1 if first and value.rank == 3 else 0
        length = f"{value.name}.shape[{axis}]"
        mask = f"torch.ones({length}, {length}, dtype=torch.bool).triu(1)"
        return f"{layer}({x}, {x}, {x}, attn_mask={mask}, need_weights=False)[0]"
    return f"{layer}({x}, {x} * 2, {x} + 1, need_weights={c.of(True, False)})[0]"


def _scaled_attention(c: Choices) -> str:
    x, _, _ = c.features((2, 3, 4), -1)
    length = f"{x}.shape[-2]"
    options = c.of(
        "is_causal=True",
        "scale=0.5",
        f"attn_mask=torch.ones({length}, {length}, dtype=torch.bool).tril()",
        f"attn_mask=torch.ones({length}, {length}).triu()",
        "",
    )
    return f"F.scaled_dot_product_attention({x}, {x} + 1, {x} * 2, {options})"


def _embedding(c: Choices) -> str:
    index, count, wide = c.integers().name, c.between(2, 5), c.between(1, 4)
    options = c.of("", "", ", padding_idx=0", ", max_norm=1.0")
    layer = c.layer(f"nn.Embedding({count}, {wide}{options})")
    return f"{layer}({index}.long() % {count})"


def _resampling(c: Choices) -> str:
    x = c.tensor(lambda v: v.dtype == torch.float32 and v.rank in (3, 4))
    if not c.scope.nonempty(x):
        raise DoesNotFitError
    if x.rank == 3:
        options = c.of(
            "scale_factor=2, mode='linear', align_corners=False",
            "scale_factor=2, mode='linear', align_corners=True",
            "size=5, mode='linear'",
            "size=5, mode='nearest'",
            "scale_factor=1.5, mode='nearest'",
            "size=4, mode='nearest-exact'",
            "size=3, mode='area'",
        )
        return f"F.interpolate({x.name}, {options})"
    options = c.of(
        "scale_factor=2, mode='bilinear'",
        "scale_factor=2, mode='bilinear', align_corners=True",
        "size=(5, 3), mode='bicubic'",
        "size=(3, 4), mode='bilinear', antialias=True",
        "scale_factor=(2, 3), mode='nearest'",
    )
    return c.of(f"F.interpolate({x.name}, {options})", f"F.unfold({x.name}, 2, padding=1)")


LAYERS = [
    *[Instruction("linear", _linear, never, computes=True)] * 3,
    Instruction("shared", _shared, never, computes=True),
    Instruction("activation", _activation, never, computes=True),
    *[Instruction("convolution", _convolution, never, computes=True)] * 3,
    *[Instruction("norm", _norm, never, computes=True)] * 2,
    Instruction("pooling", _pooling, never, computes=True),
    *[Instruction("recurrent", _recurrent, never, computes=True)] * 2,
    Instruction("cell", _cell, never, computes=True),
    *[Instruction("attention", _attention, never, computes=True)] * 2,
    Instruction("scaled attention", _scaled_attention, never, computes=True),
    Instruction("embedding", _embedding, never),
    Instruction("resampling", _resampling, never, computes=True),
]
