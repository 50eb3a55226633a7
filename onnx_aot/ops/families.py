"""Lists the families of translations and imports those that few models need on demand.

A family is a file of this package that registers translations. The families of ``FAMILIES`` are
imported together for the first export. Those of ``LATE_FAMILIES`` are imported when one of their
operators is looked up.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from onnx_aot.torch_compat import HigherOrderOperator, OpOverload

__all__ = [
    "FAMILIES",
    "LATE_FAMILIES",
    "import_all_families",
    "import_complex_families",
    "import_families",
    "import_family_of",
    "import_namespace",
    "late_family_of",
    "operator_name",
]

FAMILIES = (
    "control.scripted_control",
    "control.sequences",
    "control.symbolic_arithmetic",
    "core.casting",
    "core.creation",
    "core.cumulative",
    "core.elementwise",
    "core.float_bits",
    "core.indexing",
    "core.integers",
    "core.logical",
    "core.movement",
    "core.reduction",
    "core.scatter",
    "core.sorting",
    "core.strided",
    "linalg.products_and_norms",
    "nn.activation",
    "nn.attention",
    "nn.conv",
    "nn.embedding",
    "nn.normalization",
    "nn.pooling",
    "random.uniform_and_normal",
    "not_translated",
)
"""Families that most models need."""

LATE_FAMILIES: dict[str, tuple[str, ...]] = {
    "complex.arithmetic": (),
    "complex.covariance": (),
    "complex.cumulative": (),
    "complex.elementary": (),
    "complex.fft": ("aten.stft",),
    "complex.jacobi": (),
    "complex.eigenvalues": (),
    "complex.ldl": (),
    "complex.linear_algebra": (),
    "complex.normal_samples": (),
    "complex.qr": (),
    "complex.structural": (),
    "complex.window_functions": (
        "aten.bartlett_window",
        "aten.blackman_window",
        "aten.fft_fftfreq",
        "aten.fft_rfftfreq",
        "aten.hamming_window",
        "aten.hann_window",
        "aten.kaiser_window",
    ),
    "control.control_flow": (
        "torch.ops.higher_order.associative_scan",
        "torch.ops.higher_order.cond",
        "torch.ops.higher_order.map_impl",
        "torch.ops.higher_order.scan",
        "torch.ops.higher_order.switch",
        "torch.ops.higher_order.while_loop",
    ),
    "control.invoke_subgraph": ("torch.ops.higher_order.invoke_subgraph",),
    "core.bucketize": (
        "aten.bincount",
        "aten.bucketize",
        "aten.histc",
        "aten.histogram",
        "aten.histogramdd",
        "aten.searchsorted",
    ),
    "core.gradient": ("aten.gradient",),
    "core.bit_views": ("aten.hash_tensor", "aten.view.dtype"),
    "core.segment_reduce": ("aten.segment_reduce",),
    "core.unique": (
        "aten._unique",
        "aten._unique2",
        "aten.unique_consecutive",
        "aten.unique_dim",
    ),
    "libraries.torch_onnx_ops": ("onnx", "onnx_symbolic"),
    "libraries.torchao": ("torchao",),
    "libraries.torchvision": ("torchvision",),
    "libraries.transformers_moe": ("transformers",),
    "linalg.covariance": ("aten.corrcoef", "aten.cov"),
    "linalg.jacobi": (
        "aten._linalg_eigh",
        "aten._linalg_svd",
        "aten.linalg_eigvalsh",
        "aten.linalg_matrix_sqrth",
        "aten.linalg_pinv",
        "aten.linalg_polar",
        "aten.linalg_svdvals",
    ),
    "linalg.ldl": (
        "aten.linalg_ldl_factor",
        "aten.linalg_ldl_factor_ex",
        "aten.linalg_ldl_solve",
    ),
    "linalg.least_squares": ("aten.linalg_lstsq",),
    "linalg.matrix_norms": ("aten.linalg_cond", "aten.linalg_matrix_norm", "aten.linalg_norm"),
    "linalg.matrix_functions": ("aten.linalg_matrix_exp",),
    "linalg.qr": (
        "aten.geqrf",
        "aten.linalg_householder_product",
        "aten.linalg_qr",
        "aten.orgqr",
        "aten.ormqr",
    ),
    "linalg.solvers": (
        "aten._linalg_check_errors",
        "aten._linalg_det",
        "aten._linalg_slogdet",
        "aten._linalg_solve_ex",
        "aten._lu_with_info",
        "aten.cholesky",
        "aten.cholesky_inverse",
        "aten.cholesky_solve",
        "aten.det",
        "aten.inverse",
        "aten.linalg_cholesky",
        "aten.linalg_cholesky_ex",
        "aten.linalg_det",
        "aten.linalg_inv",
        "aten.linalg_inv_ex",
        "aten.linalg_lu",
        "aten.linalg_lu_factor",
        "aten.linalg_lu_factor_ex",
        "aten.linalg_lu_solve",
        "aten.linalg_slogdet",
        "aten.linalg_solve",
        "aten.linalg_solve_ex",
        "aten.linalg_solve_triangular",
        "aten.logdet",
        "aten.lu_solve",
        "aten.lu_unpack",
        "aten.slogdet",
        "aten.triangular_solve",
    ),
    "nn.conv_backward": ("aten.convolution_backward",),
    "nn.ctc_loss": ("aten.ctc_loss",),
    "nn.flex_attention": ("torch.ops.higher_order.flex_attention",),
    "nn.fractional_pooling": (
        "aten.fractional_max_pool2d",
        "aten.fractional_max_pool3d",
    ),
    "nn.fused_attention": (
        "aten._native_multi_head_attention",
        "aten._scaled_dot_product_cudnn_attention",
        "aten._scaled_dot_product_efficient_attention",
        "aten._scaled_dot_product_flash_attention",
        "aten._scaled_dot_product_flash_attention_for_cpu",
        "aten._scaled_dot_product_flash_attention_for_cpu_backward",
        "aten._transformer_encoder_layer_fwd",
    ),
    "nn.grid_sample": (
        "aten.grid_sampler",
        "aten.grid_sampler_2d",
        "aten.grid_sampler_3d",
    ),
    "nn.grouped_products": ("aten._grouped_mm",),
    "nn.linear_cross_entropy": ("torch_nn",),
    "nn.losses": (
        "aten.binary_cross_entropy_with_logits",
        "aten.hinge_embedding_loss",
        "aten.margin_ranking_loss",
        "aten.multilabel_margin_loss",
        "aten.multilabel_margin_loss_forward",
    ),
    "nn.packed_sequences": (
        "aten.gru.data",
        "aten.lstm.data",
        "aten.pad_sequence",
        "aten.rnn_relu.data",
        "aten.rnn_tanh.data",
        "onnx_aot.pack_padded_sequence.default",
        "onnx_aot.pad_packed_sequence.default",
    ),
    "nn.pooling_backward": (
        "aten._adaptive_avg_pool2d_backward",
        "aten._adaptive_avg_pool3d_backward",
        "aten.adaptive_max_pool2d_backward",
        "aten.adaptive_max_pool3d_backward",
        "aten.avg_pool2d_backward",
        "aten.avg_pool3d_backward",
        "aten.replication_pad1d_backward",
        "aten.replication_pad2d_backward",
        "aten.replication_pad3d_backward",
    ),
    "nn.resize": (
        "aten._upsample_bicubic2d_aa",
        "aten._upsample_bilinear2d_aa",
        "aten._upsample_lanczos2d_aa",
        "aten._upsample_nearest_exact1d",
        "aten._upsample_nearest_exact2d",
        "aten._upsample_nearest_exact3d",
        "aten.upsample_bicubic2d",
        "aten.upsample_bilinear2d",
        "aten.upsample_linear1d",
        "aten.upsample_nearest1d",
        "aten.upsample_nearest2d",
        "aten.upsample_nearest3d",
        "aten.upsample_trilinear3d",
        "onnx_aot.interpolate.default",
    ),
    "nn.rnn": (
        "aten.gru",
        "aten.gru_cell",
        "aten.lstm",
        "aten.lstm_cell",
        "aten.rnn_relu",
        "aten.rnn_relu_cell",
        "aten.rnn_tanh",
        "aten.rnn_tanh_cell",
    ),
    "quantized.affine": (
        "aten._fake_quantize_learnable_per_channel_affine",
        "aten._fake_quantize_learnable_per_tensor_affine",
        "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        "aten._int_mm",
        "aten.fake_quantize_per_channel_affine",
        "aten.fake_quantize_per_channel_affine_cachemask",
        "aten.fake_quantize_per_tensor_affine",
        "aten.fake_quantize_per_tensor_affine_cachemask",
    ),
    "quantized.observers": ("aten._fused_moving_avg_obs_fq_helper_functional",),
    "quantized.pt2e": ("quantized_decomposed",),
    "random.distributions": (
        "aten._sample_dirichlet",
        "aten._standard_gamma",
        "aten.binomial",
        "aten.multinomial",
        "aten.poisson",
    ),
    "special.bessel": (
        "aten.i0",
        "aten.special_airy_ai",
        "aten.special_bessel_j0",
        "aten.special_bessel_j1",
        "aten.special_bessel_y0",
        "aten.special_bessel_y1",
        "aten.special_i0e",
        "aten.special_i1",
        "aten.special_i1e",
        "aten.special_modified_bessel_i0",
        "aten.special_modified_bessel_i1",
        "aten.special_modified_bessel_k0",
        "aten.special_modified_bessel_k1",
        "aten.special_scaled_modified_bessel_k0",
        "aten.special_scaled_modified_bessel_k1",
        "aten.special_spherical_bessel_j0",
    ),
    "special.error_functions": (
        "aten.erfc",
        "aten.erfinv",
        "aten.special_erfcx",
        "aten.special_log_ndtr",
        "aten.special_ndtr",
        "aten.special_ndtri",
    ),
    "special.gamma": (
        "aten.digamma",
        "aten.igamma",
        "aten.igammac",
        "aten.lgamma",
        "aten.mvlgamma",
        "aten.polygamma",
        "aten.special_zeta",
    ),
    "special.polynomials": (
        "aten.special_chebyshev_polynomial_t",
        "aten.special_chebyshev_polynomial_u",
        "aten.special_chebyshev_polynomial_v",
        "aten.special_chebyshev_polynomial_w",
        "aten.special_hermite_polynomial_h",
        "aten.special_hermite_polynomial_he",
        "aten.special_laguerre_polynomial_l",
        "aten.special_legendre_polynomial_p",
        "aten.special_shifted_chebyshev_polynomial_t",
        "aten.special_shifted_chebyshev_polynomial_u",
        "aten.special_shifted_chebyshev_polynomial_v",
        "aten.special_shifted_chebyshev_polynomial_w",
    ),
}
"""Other families, with the names of their operators.

``aten.linalg_qr`` stands for all overloads of a packet, ``torchvision`` for a whole namespace; the
longest name that fits an operator decides. Families without a name have translations for complex
numbers only, and all of ``complex`` is imported when a complex value occurs. A namespace of another
package exists only once that package is imported.
"""

_FAMILY_OF = {name: family for family, names in LATE_FAMILIES.items() for name in names}


def operator_name(target: Any) -> str:
    """Returns the name of an operator: ``aten.roll.default``, ``operator.add``."""
    if isinstance(target, OpOverload):
        return str(target)
    module = getattr(target, "__module__", "").removeprefix("_")
    return f"{module}.{target.__name__}".lstrip("_")


def late_family_of(target: Any) -> str | None:
    """Returns the late family that translates an operator, or None if no late family does."""
    if isinstance(target, OpOverload):
        names: tuple[str, ...] = (str(target), str(target.overloadpacket), target.namespace)
    elif isinstance(target, HigherOrderOperator):
        names = (operator_name(target),)
    else:
        return None
    return next((_FAMILY_OF[name] for name in names if name in _FAMILY_OF), None)


@functools.cache
def import_families() -> None:
    """Imports the families that most models need."""
    for family in FAMILIES:
        _import(family)


def import_family_of(target: Any) -> None:
    """Imports the family of an operator if it is a late one."""
    family = late_family_of(target)
    if family is not None:
        _import(family)


def import_namespace(namespace: str) -> None:
    """Imports the family for the operators of another package, which has been imported."""
    _import(_FAMILY_OF[namespace])


@functools.cache
def import_complex_families() -> None:
    """Imports the families with translations for complex numbers."""
    for family in LATE_FAMILIES:
        if family.startswith("complex."):
            _import(family)


@functools.cache
def import_all_families() -> None:
    """Imports every family except those for operators that only another package defines."""
    import_families()
    for family, names in LATE_FAMILIES.items():
        if not names or any("." in name for name in names):
            _import(family)


def _import(family: str) -> None:
    importlib.import_module(f"onnx_aot.ops.{family}")
