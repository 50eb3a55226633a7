"""Captures derivatives inside of a model: ``torch.func.grad``, ``vjp``, ``jacrev``, ``jvp``.

Torch records where such a transform begins and ends, and the operators of the function between
them, but not those of its derivative. Here the transformed function is traced apart, below the
transform, which gives plain operators. These are carried out on the values of the capture, so that
it records them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat import (
    FakeTensor,
    Patch,
    Settings,
    differentiating,
    is_recording_calls,
    pytree,
    trace_below_transforms,
)

__all__ = ["DERIVATIVES", "TracedCall"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class TracedCall:
    """A call of a function, traced apart.

    Args:
        function: The function.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._function = function
        self._leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self._positions = [i for i, leaf in enumerate(self._leaves) if _is_computed(leaf)]
        self._results: list[Any] = []
        self._result_spec: Any = None
        self._inputs = [self._leaves[position] for position in self._positions]
        self._module = trace_below_transforms(self._run, self._inputs)
        read = _find_fake_tensors(self._module)
        if read:  # of values that are no inputs, torch does not record the sizes
            self._inputs += read
            self._module = trace_below_transforms(self._run, self._inputs)

    def _run(self, *inputs: Any) -> list[Any]:
        leaves = list(self._leaves)
        for position, value in zip(self._positions, inputs, strict=False):
            leaves[position] = value
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        returned = self._function(*args, **kwargs)
        self._results, self._result_spec = pytree.tree_flatten(returned)
        return [leaf for leaf in self._results if _is_computed(leaf)]

    def record(self) -> Any:
        """Carries the operators out where they are recorded; returns the result of the call."""
        module = self._module
        computed = iter(torch.fx.Interpreter(module).run(*self._inputs))
        leaves = [next(computed) if _is_computed(leaf) else leaf for leaf in self._results]
        return pytree.tree_unflatten(leaves, self._result_spec)


def _is_computed(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, *_SYMBOLIC))


def _find_fake_tensors(module: torch.fx.GraphModule) -> list[torch.Tensor]:
    """The tensors of the capture that a traced function reads without being given them."""
    held = [getattr(module, node.target) for node in module.graph.nodes if node.op == "get_attr"]
    return list({id(one): one for one in held if isinstance(one, FakeTensor)}.values())


class _Count:
    """Number of derivatives that functions computed while they were traced apart."""

    def __init__(self) -> None:
        self.derivatives = 0


_count = _Count()


def _expand(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Records a derivative by its operators."""

    def differentiate(*args: Any, **kwargs: Any) -> Any:
        with differentiating():
            return original(*args, **kwargs)

    def derivative(*args: Any, **kwargs: Any) -> Any:
        if is_recording_calls():
            return TracedCall(differentiate, args, kwargs).record()
        _count.derivatives += 1
        return differentiate(*args, **kwargs)

    return derivative


def _expand_pulled_back(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Records the function that ``torch.func.vjp`` returns by its operators, when it is called."""

    def vjp_with_argnums(func: Any, *primals: Any, **options: Any) -> Any:
        if not is_recording_calls():
            _count.derivatives += 1
            with differentiating():
                return original(func, *primals, **options)

        def pull(primals: Any, cotangents: Any) -> Any:
            _count.derivatives += 1
            with differentiating():
                return original(func, *primals, **options)[1](cotangents)

        @functools.wraps(pull)
        def pull_back(cotangents: Any, *_: Any, **__: Any) -> Any:
            if is_recording_calls():
                return TracedCall(pull, (primals, cotangents), {}).record()
            return pull(primals, cotangents)

        returned = func(*primals)
        if options.get("has_aux"):
            result, aux = returned
            return result, pull_back, aux
        return returned, pull_back

    return vjp_with_argnums


def _push_by_pulling(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Computes ``torch.func.jvp`` by two derivatives backwards: forwards, torch fixes sizes.

    The derivative backwards is linear in what it is given, and its derivative by that is the
    derivative forwards.
    """

    def push(
        func: Any, primals: Any, tangents: Any, argnums: Any, has_aux: bool
    ) -> tuple[Any, ...]:
        numbers = range(len(primals)) if argnums is None else argnums
        numbers = (numbers,) if isinstance(numbers, int) else numbers
        places = [number % len(primals) for number in numbers]
        varied = [primals[place] for place in places]

        def of_varied(*values: Any) -> Any:
            replaced = dict(zip(places, values, strict=True))
            return func(*(replaced.get(p, primal) for p, primal in enumerate(primals)))

        def pull(cotangents: Any) -> Any:
            return torch.func.vjp(of_varied, *varied, has_aux=has_aux)[1](cotangents)

        result, _, *aux = torch.func.vjp(of_varied, *varied, has_aux=has_aux)
        zeros = pytree.tree_map(torch.zeros_like, result)
        (pushed,) = torch.func.vjp(pull, zeros)[1](tuple(tangents))
        return (result, pushed, *aux)

    def jvp_with_argnums(
        func: Any, primals: Any, tangents: Any, argnums: Any, *, strict: bool = False, has_aux: bool
    ) -> Any:
        if is_recording_calls():
            return TracedCall(push, (func, primals, tangents, argnums, has_aux), {}).record()
        _count.derivatives += 1
        return push(func, primals, tangents, argnums, has_aux)

    return jvp_with_argnums


def _expand_if_nested(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Records ``torch.vmap`` by its operators if there are derivatives in the function.

    Torch expands others when the capture is complete, and refuses them on the paths of branches.
    """

    def vmap_impl(*args: Any, **kwargs: Any) -> Any:
        if not is_recording_calls():
            return original(*args, **kwargs)
        before = _count.derivatives
        try:
            traced = TracedCall(original, args, kwargs)
        except Exception:
            if _count.derivatives != before:
                raise
            return original(*args, **kwargs)
        is_needed = _count.derivatives != before or settings.branches is not None
        return traced.record() if is_needed else original(*args, **kwargs)

    return vmap_impl


_REFUSED = "Models that compute {} are refused."
_TRANSFORMS = "torch._functorch.eager_transforms"


def _name_rows(rows: Sequence[tuple[str, str, Any, str]]) -> tuple[Patch, ...]:
    return tuple(
        Patch(name, make, _REFUSED.format(lost), when=_is_python, parameters=parameters)
        for name, parameters, make, lost in rows
    )


def _is_python(settings: Settings) -> bool:
    return settings.module is not None and not settings.strict


DERIVATIVES: tuple[Patch, ...] = _name_rows(
    (
        (
            f"{_TRANSFORMS}:grad_and_value_impl",
            "func, argnums, has_aux, args, kwargs",
            _expand,
            "torch.func.grad",
        ),
        (
            f"{_TRANSFORMS}:_vjp_with_argnums",
            "func, primals",
            _expand_pulled_back,
            "torch.func.vjp or jacrev",
        ),
        (
            f"{_TRANSFORMS}:_jvp_with_argnums",
            "func, primals, tangents, argnums",
            _push_by_pulling,
            "torch.func.jvp, jacfwd or hessian",
        ),
        (
            "torch._functorch.apis:vmap_impl",
            "func, in_dims, out_dims, randomness, chunk_size, args, kwargs",
            _expand_if_nested,
            "derivatives under torch.vmap",
        ),
    )
)
