"""Which operators of a captured graph behave as they do in training."""

from __future__ import annotations

import torch
import torch.fx

from onnx_aot.torch_compat import OpOverload

__all__ = ["training_operators"]

# Arguments by which torch's operators are told that they run in training.
FLAGS = frozenset({"train", "training", "use_input_stats"})

aten = torch.ops.aten

# Operators whose flag does not depend on the module's mode alone.
ALWAYS = frozenset({aten.instance_norm.default})


def training_operators(module: torch.fx.GraphModule) -> list[str]:
    """The names of operators that are called with a training flag set, without repetition.

    Those in branches, loop bodies and regions are among them.
    """
    found: dict[str, None] = {}
    graphs = [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        target = node.target
        if not isinstance(target, OpOverload) or target in ALWAYS:
            continue
        for position, argument in enumerate(target._schema.arguments):
            if argument.name in FLAGS:
                given = node.args[position] if position < len(node.args) else None
                if node.kwargs.get(argument.name, given) is True:
                    found[str(target.overloadpacket)] = None
    return list(found)
