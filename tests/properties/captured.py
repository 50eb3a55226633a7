"""Runs a program as captured by torch.export, to separate its limits from this package's bugs."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from onnx_aot.capture.patches import capture_conditions
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.torch_compat import Settings, is_symbol, pytree, symbolic_expression
from tests.properties.programs import Program

__all__ = ["Eager", "captured_differs"]

Eager = tuple[list[torch.Tensor], dict[str, torch.Tensor]]
"""Results of a module, and its inputs and state afterwards by name."""


def captured_differs(program: Program, inputs: tuple[Any, ...], expected: Eager) -> bool:
    """True if the captured program already differs from eager mode, or has a wrong size.

    The capture allows sizes from zero on, as ``export`` does if it sees that this matters. Torch
    does not support this everywhere: it computes the size of ``x[m:1]`` as 0.
    """
    dynamic = program.dynamic_shapes()
    if dynamic is not None and program.takes == "dataclass":  # torch takes its fields as a list
        dynamic = {**dynamic, "others": list(dynamic["others"].values())}
    given = next((one for one in inputs if hasattr(one, "_fields")), None)
    if dynamic is not None and given is not None:  # torch wants the same class of named tuple
        dynamic = {**dynamic, "others": type(given)(*dynamic["others"])}
    asked = pytree.tree_map(
        lambda dim: torch.export.Dim.DYNAMIC if isinstance(dim, str) else dim, dynamic
    )
    try:
        captured = _captured(program, asked)
    except Exception:  # a Dim promises more than the model's own limits allow
        captured = _captured(program, pytree.tree_map(lambda dim: torch.export.Dim.AUTO, asked))
    module: Any = captured.module(check_guards=False)
    nodes = {node.name: node for node in captured.graph.nodes}
    names = [str(name) for name in captured.graph_signature.user_inputs]
    for name, given in zip(names, program.inputs, strict=True):
        fixed = [isinstance(size, int) for size in nodes[name].meta["val"].shape]
        asked_fixed = [isinstance(dim, int) or dynamic is None for dim in given.dims]
        assert fixed == asked_fixed, "more is static than asked"
    leaves = pytree.tree_leaves(inputs)
    run = _Measured(module)
    try:
        returned = run.run(*leaves)
    except _RefusedError:
        return True
    results, state = expected
    after = {**dict(zip(names, leaves, strict=True)), **module.state_dict()}
    kept = [name for name in after if name in state]
    wanted = [*results, *(state[name] for name in kept)]
    flat = [leaf for leaf in pytree.tree_leaves(returned) if leaf is not None]
    actual = [*map(torch.as_tensor, flat), *(after[name] for name in kept)]
    same = compare_outputs(list(map(str, range(len(wanted)))), wanted, actual)
    return run.wrong or not all(difference.within for difference in same)


def _captured(program: Program, dynamic: Any) -> torch.export.ExportedProgram:
    example = program.example_inputs(program.example)
    with capture_conditions(Settings(dynamic=dynamic is not None, from_zero=True)), torch.no_grad():
        return torch.export.export(program.module(), example, dynamic_shapes=dynamic)


class _RefusedError(Exception):
    """An operator of the captured program rejects its inputs."""


class _Measured(torch.fx.Interpreter):
    """Runs a captured program; ``wrong``: True if a shape differed from the recorded one."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.wrong = False
        self._sizes: dict[Any, int] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            result = super().run_node(n)
        except (RuntimeError, IndexError, ValueError, ZeroDivisionError) as error:
            raise _RefusedError from error
        recorded = n.meta.get("val")
        if isinstance(recorded, torch.Tensor) and isinstance(result, torch.Tensor):
            self.wrong |= recorded.dim() != result.dim()  # squeeze of a size that happens to be 1
            for size, there in zip(recorded.shape, result.shape, strict=False):
                self._check(size, there)
        return result

    def _check(self, recorded: int | torch.SymInt, there: int) -> None:
        if not isinstance(recorded, torch.SymInt):
            self.wrong |= recorded != there
            return
        expression: Any = symbolic_expression(recorded)
        if is_symbol(recorded):
            self._sizes.setdefault(expression, there)
        worked_out = expression.xreplace(self._sizes)
        if not getattr(worked_out, "free_symbols", ()):  # of unbacked sizes
            self.wrong |= int(worked_out) != there
