"""Writes metadata on ONNX nodes and values, as the only module that does.

The formats are those of torch.onnx 2.13, so that tools that read its models also read ours.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot.graph.traversal import subgraphs
from onnx_aot.metadata.fx_text import FxText
from onnx_aot.metadata.keys import (
    CAPTURED_NODE,
    CLASS_HIERARCHY,
    COMPLEX,
    CONSTRAINTS,
    DIMENSIONS,
    FX_NODE,
    INPUT_KIND,
    INPUT_PERSISTENT,
    NAME_SCOPES,
    NAMESPACE,
    ORIGINAL_NAME,
    OUTPUT_KIND,
    SIGNATURE,
    STACK_TRACE,
    STATE,
)
from onnx_aot.metadata.provenance import stack_trace, target_name
from onnx_aot.metadata.trace_paths import relativize_trace
from onnx_aot.torch_compat import NO_MODULE, TRACED_ROOT

__all__ = ["Metadata", "MetadataLevel"]

MetadataLevel = Literal["full", "light", "none"]


class Metadata:
    """Stamps nodes with the module, FX node and source line that they come from.

    ``full`` writes everything; ``light`` leaves out the FX node and the stack trace, which make up
    most of the bytes and hold paths; ``none`` writes nothing on nodes and the graph. Inputs,
    outputs and initializers always get their kinds and original names: weights are found by them.
    """

    def __init__(self, level: MetadataLevel, relative_to: str | None) -> None:
        """Files in stack traces are named relative to the folder ``relative_to``.

        With None, files are named as they were imported, independently of the machine.
        """
        self._level = level
        self._root = None if relative_to is None else os.path.abspath(relative_to) + os.sep
        self._files: dict[str, str] = {}
        self._traces: dict[str, str] = {}  # lines that run many times share one text
        self._class_names: dict[Any, str] = {}
        self._modules: dict[Any, tuple[str, str, str]] = {}
        self._text = FxText()
        self._around: tuple[torch.fx.Node, ...] = ()

    def stamp(self, nodes: Iterable[ir.Node], fx_node: torch.fx.Node) -> None:
        """Writes the same properties on every ONNX node that an FX node became."""
        properties: dict[str, str] | None = None
        for node in nodes:
            if FX_NODE in node.meta:  # from a body, stamped with the body's own nodes
                continue
            node.meta[FX_NODE] = fx_node.name
            if properties is None:
                properties = {} if self._level == "none" else self._make_properties(fx_node)
            node.metadata_props.update(properties)
            for graph in subgraphs(node):
                self.stamp(graph, fx_node)

    @contextlib.contextmanager
    def enter_body(self, caller: torch.fx.Node | None) -> Iterator[None]:
        """Treats nodes as those of a body passed to ``caller``, which is a scope around them."""
        before = self._around
        self._around = before if caller is None else (*before, caller)
        try:
            yield
        finally:
            self._around = before

    def _make_properties(self, fx_node: torch.fx.Node) -> dict[str, str]:
        stack = tuple((fx_node.meta.get("nn_module_stack") or {}).values())
        around = self._modules.get(stack) if not self._around else None
        if around is None:
            around = self._scopes_around(fx_node, stack)
            if not self._around:
                self._modules[stack] = around
        called = target_name(fx_node.target)
        properties = {
            NAMESPACE: f"{around[0]}{fx_node.name}: {called}",
            CLASS_HIERARCHY: f"[{around[1]}{called!r}]",
            NAME_SCOPES: f"[{around[2]}{fx_node.name!r}]",
        }
        if self._level == "full":
            properties[CAPTURED_NODE] = self._text.format_node(fx_node)
            properties[STACK_TRACE] = self._shorten_trace(stack_trace(fx_node))
        return properties

    def _scopes_around(self, fx_node: torch.fx.Node, stack: Sequence[Any]) -> tuple[str, str, str]:
        """Prefixes of a node's namespace, classes and scopes, from the modules around it."""
        scopes = []
        classes = []
        if self._around:
            stack = tuple((self._around[0].meta.get("nn_module_stack") or {}).values())
        for scope, class_ in stack:
            if scope.startswith(NO_MODULE):
                continue
            scopes.append(scope)
            classes.append(self._class_name(class_))
        for caller in self._around:
            scopes.append(caller.name)
            classes.append(str(caller.target))
        if self._around:
            self._add_inner(fx_node, scopes, classes)
        namespace = "".join(f"{s}: {c}/" for s, c in zip(scopes, classes, strict=True))
        return namespace, "".join(f"{c!r}, " for c in classes), "".join(f"{s!r}, " for s in scopes)

    def _add_inner(self, fx_node: torch.fx.Node, scopes: list[str], classes: list[str]) -> None:
        """Adds modules that a body calls; a prefix of the trace is cut off their names."""
        for scope, class_ in (fx_node.meta.get("nn_module_stack") or {}).values():
            name = TRACED_ROOT.sub("", scope)
            if name and name not in scopes:
                scopes.append(name)
                classes.append(self._class_name(class_))

    def _class_name(self, class_: Any) -> str:
        """Qualified name of an entry of ``nn_module_stack``, which holds a class or its name."""
        if isinstance(class_, str):
            return class_
        name = self._class_names.get(class_)
        if name is None:
            module = class_.__module__
            builtin = module is None or module == str.__module__
            name = class_.__name__ if builtin else f"{module}.{class_.__name__}"
            self._class_names[class_] = name
        return name

    def _shorten_trace(self, trace: str) -> str:
        found = self._traces.get(trace)
        if found is None:
            if self._root is None:
                found = relativize_trace(trace, self._files)
            else:
                found = trace.replace(f'"{self._root}', '"')
            self._traces[trace] = found
        return found

    def describe_graph(self, graph: ir.Graph, program: torch.export.ExportedProgram) -> None:
        """Writes the graph signature and range constraints of the program on the graph."""
        if self._level == "none":
            return
        graph.metadata_props[SIGNATURE] = str(program.graph_signature)
        graph.metadata_props[CONSTRAINTS] = str(program.range_constraints)

    def describe_dimensions(
        self,
        graph: ir.Graph,
        ranges: Mapping[str, Mapping[str, int]],
        relations: Sequence[str],
        conditions: Sequence[str],
    ) -> None:
        """Writes the constraints on input sizes, in the user's names, on the graph."""
        if self._level != "none" and (ranges or relations or conditions):
            written = {"dimensions": ranges, "relations": relations, "conditions": conditions}
            graph.metadata_props[DIMENSIONS] = json.dumps(written)

    def describe_input(self, value: ir.Value, kind: Any, persistent: bool | None) -> None:
        """Writes the kind of an input or initializer: USER_INPUT, PARAMETER, BUFFER, ..."""
        value.metadata_props[INPUT_KIND] = kind.name
        value.metadata_props[INPUT_PERSISTENT] = str(persistent)

    def describe_output(self, value: ir.Value, kind: Any) -> None:
        """Writes the kind of an output: USER_OUTPUT, BUFFER_MUTATION, ..."""
        value.metadata_props[OUTPUT_KIND] = kind.name

    def describe_state(self, value: ir.Value, source: str) -> None:
        """Writes the input that an output is the new value of."""
        value.metadata_props[STATE] = source

    def describe_complex(self, value: ir.Value, dtype: torch.dtype) -> None:
        """Records that a value's last dimension holds the parts of complex numbers."""
        value.metadata_props[COMPLEX] = str(dtype).removeprefix("torch.")

    def record_original_name(self, value: ir.Value, original: str) -> None:
        """Writes the name that the capture gave a value, if it has another one now."""
        if value.name != original:
            value.metadata_props[ORIGINAL_NAME] = original
