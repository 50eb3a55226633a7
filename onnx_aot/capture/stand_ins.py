"""Kernels and functions that replace torch's own while a model is traced, and only then.

Each gives the capture what it needs and leaves the recorded operator as it is.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx.traceback
import torch.utils.checkpoint

from onnx_aot import torch_compat
from onnx_aot.capture.autograd_functions import functions_kept
from onnx_aot.capture.detection import detection_models
from onnx_aot.capture.packed_sequences import packed_sequences

__all__ = ["KERNELS", "stand_ins"]

aten = torch.ops.aten
Tensor = torch.Tensor


def _recurrent_shapes(
    input: Tensor,
    states: Sequence[Tensor],
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Outputs of the right shape; torch's kernels unroll over time, which fixes its length."""
    width = states[0].shape[2] * (2 if bidirectional else 1)  # of the projection, if there is one
    output = input.new_empty([input.shape[0], input.shape[1], width])
    return (output, *(torch.empty_like(state) for state in states))


def _lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _recurrent_shapes(input, hx, bidirectional)


def _gru_or_rnn(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _recurrent_shapes(input, [hx], bidirectional)


def _packed_lstm(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    width = hx[0].shape[2] * (2 if bidirectional else 1)
    output = data.new_empty([data.shape[0], width])
    return (output, *(torch.empty_like(state) for state in hx))


def _packed_gru_or_rnn(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    arguments = (params, has_biases, num_layers, dropout, train, bidirectional)
    return _packed_lstm(data, batch_sizes, [hx], *arguments)


def _max_pool1d(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """Torch's kernel asks for the length as a number, which fixes it; this one does not."""
    arguments = (self, kernel_size, stride, padding, dilation, ceil_mode)
    return aten.max_pool1d_with_indices.default(*arguments)[0]  # type: ignore[no-any-return]


def _tensor_split(self: Tensor, sections: int, dim: int = 0) -> list[Tensor]:
    """Torch's kernel asks per piece whether it has one element more, which fixes the remainder."""
    size = self.shape[dim]
    each, more = size // sections, size % sections
    least: Any = torch.sym_min
    starts = [each * index + least(more, index) for index in range(sections + 1)]
    pieces = []
    for start, end in itertools.pairwise(starts):
        shape = list(self.shape)
        shape[dim] = end - start
        offset = self.storage_offset() + start * self.stride(dim)
        pieces.append(self.as_strided(shape, self.stride(), offset))
    return pieces


def _fake_quantized(self: Tensor, *parameters: Any) -> Tensor:
    """Torch's kernel has no form for fake tensors, which refuses dynamic dimensions."""
    return torch.empty_like(self)


def _stft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """A spectrum of the right shape; torch's kernel refuses a dynamic length."""
    hop = n_fft // 4 if hop_length is None else hop_length
    given_complex = self.is_complex() or (window is not None and window.is_complex())
    half = not given_complex if onesided is None else onesided
    bins = n_fft // 2 + 1 if half else n_fft
    frames = (self.shape[-1] - n_fft) // hop + 1
    dtype = self.dtype.to_complex()
    spectrum = self.new_empty([*self.shape[:-1], bins, frames], dtype=dtype)
    return spectrum if return_complex else torch.view_as_real(spectrum)


def _istft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """A signal of the right shape, likewise."""
    hop = n_fft // 4 if hop_length is None else hop_length
    if length is None:
        length = n_fft + hop * (self.shape[-1] - 1) - (n_fft // 2 * 2 if center else 0)
    dtype = self.dtype if return_complex else self.dtype.to_real()
    return self.new_empty([*self.shape[:-2], length], dtype=dtype)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Torch's kernel asks whether there are more than 25 rows, which limits how many there are."""
    torch._check(x1.shape[-1] == x2.shape[-1])  # type: ignore[no-untyped-call]
    batch: Any = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # type: ignore[no-untyped-call]
    return x1.new_empty([*batch, x1.shape[-2], x2.shape[-2]])


KERNELS: dict[Any, Any] = {
    aten.cdist.default: _cdist,
    aten.fake_quantize_per_tensor_affine.default: _fake_quantized,
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake_quantized,
    aten.fake_quantize_per_channel_affine.default: _fake_quantized,
    aten.max_pool1d.default: _max_pool1d,
    aten.istft.default: _istft,
    aten.lstm.data: _packed_lstm,
    aten.lstm.input: _lstm,
    aten.gru.data: _packed_gru_or_rnn,
    aten.gru.input: _gru_or_rnn,
    aten.rnn_tanh.data: _packed_gru_or_rnn,
    aten.rnn_tanh.input: _gru_or_rnn,
    aten.rnn_relu.data: _packed_gru_or_rnn,
    aten.rnn_relu.input: _gru_or_rnn,
    aten.stft.default: _stft,
    aten.tensor_split.sections: _tensor_split,
}


def _is_causal_hint(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """``nn.Transformer*`` compares its mask with a causal one, which a capture cannot branch on.

    The comparison only looks for a shortcut: with False the mask itself is used.
    """
    return is_causal is True


def _without_gradients(
    original: Callable[..., Any],
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Any = None,
) -> Any:
    """Torch's own traces backward graphs too, which some carried values and nestings refuse.

    Nothing of gradients is exported, and without them functions may write to what is around them.
    Nodes of the functions keep the user's lines.
    """
    reused = ("torch._dynamo.variables.invoke_subgraph", "is_reuse_eligible", lambda *_: False)
    with (
        torch_compat.without_gradients(),
        torch_compat.override_module_function(
            *reused
        ),  # fails for some; equal ones are found later
        torch.fx.traceback.preserve_node_meta(),
    ):
        return original(function, args, kwargs)


def _associative_scan(
    original: Callable[..., Any],
    operator: Any,
    leaves: Sequence[Tensor],
    dim: int = 0,
    additional_inputs: Any = (),
) -> Any:
    """Torch's generic form unrolls while it is traced; here the scan stays one operator.

    ``operator`` is a partial function around the user's function under ``vmap``. The operator is
    for functions that a GPU kernel can be made of, which is no concern here.
    """
    if torch.compiler.is_dynamo_compiling():  # closures cannot be looked into
        return original(operator, leaves, dim, additional_inputs)
    under_vmap = inspect.getclosurevars(operator.keywords["combine_fn"]).nonlocals
    if "func" not in under_vmap:
        return original(operator, leaves, dim, additional_inputs)
    of_slices = functools.partial(
        operator.func, **{**operator.keywords, "combine_fn": under_vmap["func"]}
    )

    def scan(combine: Any, values: Any) -> Any:
        return torch.ops.higher_order.associative_scan(combine, values, additional_inputs=())

    run = vars(sys.modules[_BODIES])["_maybe_compile_and_run_fn"]
    accepting = ("torch._inductor.utils", "is_pointwise_use", lambda *_, **__: True)
    with torch_compat.override_module_function(*accepting):
        return torch_compat.pytree.tree_leaves(run(scan, of_slices, leaves))


def _no_cache(original: Callable[..., Any]) -> None:
    """Torch's knows regions by names that repeat: another function's graph would be captured."""


def _with_context(original: Callable[..., Any], run: Any) -> Any:
    """Torch asks every checkpoint in a function for the context that only some have."""
    module = getattr(getattr(run, "__self__", None), "module", None)
    if isinstance(module, torch.fx.GraphModule):
        module.meta.setdefault("_checkpoint_context_fn", torch.utils.checkpoint.noop_context_fn)
    return original(run)


@functools.cache
def _blocks_operator() -> Any:
    """An operator of the right shape; a model that reads the blocks themselves is refused."""

    @torch.library.custom_op("onnx_aot::blocks_of_mask", mutates_args=())
    def blocks_of_mask(mask: Tensor, rows: int, columns: int) -> Tensor:
        raise AssertionError("it is traced, and not run")

    @blocks_of_mask.register_fake
    def _(mask: Tensor, rows: int, columns: int) -> Tensor:
        return mask.new_empty((*mask.shape[:2], rows, columns), dtype=torch.int32)

    return blocks_of_mask


def _block_mask(
    original: Callable[..., Any],
    mask: Tensor,
    Q_BLOCK_SIZE: int = 128,  # noqa: N803
    KV_BLOCK_SIZE: int = 128,  # noqa: N803
    separate_full_blocks: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Torch's function asks how many blocks there are, which limits the lengths.

    ``flex_attention`` is translated with the mask's function, not with its blocks.
    """
    mask = mask.expand((1,) * (4 - mask.dim()) + tuple(mask.shape))
    rows = (mask.shape[2] + Q_BLOCK_SIZE - 1) // Q_BLOCK_SIZE
    columns = (mask.shape[3] + KV_BLOCK_SIZE - 1) // KV_BLOCK_SIZE
    blocks = _blocks_operator()(mask, rows, columns)
    return blocks, blocks if separate_full_blocks else None


def _ordered(original: Callable[..., Any], blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Likewise; counts of blocks per row, and the blocks."""
    indices = _blocks_operator()(blocks, blocks.shape[2], blocks.shape[3])
    return indices.sum(-1, dtype=torch.int32), indices


def _transposed(
    original: Callable[..., Any], counts: Tensor, blocks: Tensor
) -> tuple[Tensor, Tensor]:
    """Likewise, per column."""
    if blocks.dim() != 4:
        return original(counts, blocks)  # type: ignore[no-any-return]
    indices = _blocks_operator()(blocks, blocks.shape[3], blocks.shape[2])
    return indices.sum(-1, dtype=torch.int32), indices


def _extreme(
    original: Callable[..., Any],
    *args: Any,
    real_callable: Any,
    tensor_callable: Any,
    **kwargs: Any,
) -> Any:
    """Torch's ``min`` and ``max`` choose among symbolic ints without asking which is less.

    Here they do so among symbolic floats too.
    """
    floats = all(isinstance(argument, (float, torch.SymFloat)) for argument in args)
    if len(args) == 2 and floats and any(isinstance(argument, torch.SymFloat) for argument in args):
        choose: Any = torch.sym_max if tensor_callable is torch.maximum else torch.sym_min
        return choose(*args)
    options = {"real_callable": real_callable, "tensor_callable": tensor_callable}
    return original(*args, **options, **kwargs)


def _as_tensor(original: Callable[..., Tensor], data: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Torch's makes plain numbers of sizes, which fixes them; ``torch.tensor`` does not."""
    leaves = torch_compat.pytree.tree_leaves(data) if isinstance(data, (list, tuple)) else [data]
    if not any(isinstance(leaf, (torch.SymInt, torch.SymFloat)) for leaf in leaves):
        return original(data, *args, **kwargs)
    return torch.tensor(data, **{**dict(zip(("dtype", "device"), args, strict=False)), **kwargs})


_BODIES = "torch._higher_order_ops.utils"
_FLEX = "torch.nn.attention.flex_attention"

# Otherwise regions that are called once become part of the graph around them.
REGIONS_ARE_KEPT = ("torch._dynamo.config", "inline_single_use_invoke_subgraph", False)

# Functions that get the one that they replace as their first argument.
WRAPPERS = (
    ("torch", "as_tensor", _as_tensor),
    (_BODIES, "_hop_compile_and_call", _without_gradients),
    (_FLEX, "_convert_mask_to_block_mask", _block_mask),
    (_FLEX, "_dense_to_ordered", _ordered),
    (_FLEX, "_transpose_ordered", _transposed),
    ("torch._export.non_strict_utils", "_tensor_min_max", _extreme),
    ("torch._higher_order_ops.wrap", "reenter_make_fx", _with_context),
    ("torch._higher_order_ops.associative_scan", "generic_associative_scan", _associative_scan),
    ("torch._higher_order_ops.invoke_subgraph", "get_invoke_subgraph_cache", _no_cache),
)

FUNCTIONS = (("torch.nn.modules.transformer", "_detect_is_causal_mask", _is_causal_hint),)


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Puts the replacements in place for the duration."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(functions_kept())
        stack.enter_context(packed_sequences())
        stack.enter_context(torch_compat.sizes_of_kernels_from_zero())
        stack.enter_context(detection_models())
        stack.enter_context(torch_compat.override_composite_kernels(KERNELS))
        stack.enter_context(torch_compat.override_module_function(*REGIONS_ARE_KEPT))
        for module, name, function in FUNCTIONS:
            if module in sys.modules:
                stack.enter_context(torch_compat.override_module_function(module, name, function))
        for module, name, wrapper in WRAPPERS:
            original = getattr(sys.modules.get(module), name, None)
            if original is not None:
                replaced = functools.partial(wrapper, original)
                stack.enter_context(torch_compat.override_module_function(module, name, replaced))
        yield
