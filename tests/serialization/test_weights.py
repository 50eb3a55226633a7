"""Deferred weights: models built without them, and checkpoints in memory and in files."""

from __future__ import annotations

import errno
import json
import mmap
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterWarning, SaveError
from onnx_aot.serialization.mapped_tensor import CastTensor, StoredTensor
from tests.serialization.checkpoint_files import Tensor, X, write_safetensors
from tests.tolerances import assert_close


class Net(torch.nn.Module):
    """Tied weights, and buffers inside and outside of the state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(8, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.linear = torch.nn.Linear(32, 32)
        self.head = torch.nn.Linear(32, 8, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(32.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x).flatten(0, 1) * self.scale
        return self.head(self.norm(self.linear(hidden)))


def real() -> Net:
    torch.manual_seed(0)
    net = Net().eval()
    net.norm.running_mean.normal_()
    net.norm.running_var.uniform_(0.5, 2.0)
    return net


def fake(**options: Any) -> onnx_aot.ONNXProgram:
    with onnx_aot.enable_fake_mode():
        net = Net().eval()
    assert all(parameter.is_meta for parameter in net.parameters())
    assert net.head.weight is net.embed.weight
    return onnx_aot.export(net, (X,), dynamic_shapes=({0: "batch"},), **options)


def stored_in(folder: Path, kind: str, net: torch.nn.Module) -> Any:
    """Returns a module's weights as a checkpoint of the given kind."""
    state = {name: tensor for name, tensor in net.state_dict().items() if name != "head.weight"}
    if kind == "dict":
        return net.state_dict()
    if kind == "safetensors":
        write_safetensors(folder / "all.safetensors", state)
        return folder / "all.safetensors"
    if kind == "pt":
        torch.save(state, folder / "all.pt")
        return str(folder / "all.pt")
    if kind == "nested pt":
        torch.save({"epoch": 3, "state_dict": net.state_dict()}, folder / "all.ckpt")
        return folder / "all.ckpt"
    if kind == "old pt":
        torch.save(state, folder / "all.bin", _use_new_zipfile_serialization=False)
        return folder / "all.bin"
    shards = {f"model-{n}.safetensors": list(state)[n::2] for n in range(2)}
    for file, names in shards.items():
        write_safetensors(folder / file, {name: state[name] for name in names}, first=5)
    index = {name: file for file, names in shards.items() for name in names}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder if kind == "folder" else path


KINDS = ["dict", "safetensors", "pt", "nested pt", "old pt", "folder", "index"]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_given_later(kind: str, tmp_path: Path) -> None:
    net = real()
    program = fake()
    with pytest.raises(SaveError, match="weights have no values yet"):
        program.save(tmp_path / "model.onnx")
    (tmp_path / "weights").mkdir()
    program.apply_weights(stored_in(tmp_path / "weights", kind, net))
    for x in (X, X[:1]):
        assert_close(program(x)[0], net(x))
    for external_data in (True, False):
        path = tmp_path / f"{external_data}.onnx"
        program.save(path, external_data=external_data)
        (y,) = onnxruntime.InferenceSession(path).run(None, {"x": X.numpy()})
        assert_close(torch.from_numpy(y), net(X))


def test_the_same_file_as_with_weights(tmp_path: Path) -> None:
    """The files are equal, apart from folding: batch normalization into a linear layer."""
    net, program = real(), fake(optimize=False)
    program.apply_weights(stored_in(tmp_path, "folder", net))
    other = onnx_aot.export(net, (X,), dynamic_shapes=({0: "batch"},), optimize=False)
    for name, value in other.model.graph.initializers.items():
        given = program.model.graph.initializers[name].const_value
        assert given.tobytes() == value.const_value.tobytes(), name
    assert set(other.model.graph.initializers) == set(program.model.graph.initializers)
    program.save(tmp_path / "one.onnx")
    other.save(tmp_path / "two.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_tied_weights_are_one_region(tmp_path: Path) -> None:
    program = fake(optimize=False)
    program.apply_weights(stored_in(tmp_path, "folder", real()))
    program.save(tmp_path / "model.onnx", external_data=True)
    # linear and embed; each one starts at a multiple of a page
    assert (tmp_path / "model.onnx.data").stat().st_size == 32 * 32 * 4 + 8 * 32 * 4
    tied = {"embed.weight", "head.weight"}
    assert len(tied & set(program.model.graph.initializers)) == 1


def test_what_lies_in_safetensors_stays_there(tmp_path: Path) -> None:
    program = fake(optimize=False)
    program.apply_weights(stored_in(tmp_path, "folder", real()))
    held = program.model.graph.initializers["linear.weight"].const_value
    assert isinstance(held, StoredTensor)
    assert program.compute_values(["linear.weight"], (X,))[0].equal(real().linear.weight)


def test_what_is_written_to_stored_weights_is_saved(tmp_path: Path) -> None:
    net, program = real(), fake(optimize=False)
    checkpoint = stored_in(tmp_path, "folder", net)
    program.apply_weights(checkpoint)
    held = program.model.graph.initializers["linear.weight"].const_value
    assert isinstance(held, StoredTensor)
    with pytest.raises(ValueError, match="read-only"):
        held.numpy()[...] = 0
    held.raw.view(-1)[3:].mul_(2)  # through a view
    program.save(tmp_path / "model.onnx")
    with torch.no_grad():
        net.linear.weight.view(-1)[3:].mul_(2)
    loaded = onnx_aot.ONNXProgram.load(tmp_path / "model.onnx")
    assert_close(loaded(X)[0], net(X))
    again = fake(optimize=False)
    again.apply_weights(checkpoint)  # the file is as it was
    assert_close(again(X)[0], real()(X))


def test_weights_are_mapped_where_memory_is_not_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system may refuse a writable mapping of a file that is larger than its memory."""
    asked: list[int] = []

    def map_file(file: int, length: int, access: int) -> mmap.mmap:
        asked.append(access)
        if access == mmap.ACCESS_COPY:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return mapped(file, length, access=access)

    mapped = mmap.mmap
    monkeypatch.setattr("onnx_aot.serialization.mapped_tensor.mmap.mmap", map_file)
    program = fake(optimize=False)
    program.apply_weights(stored_in(tmp_path, "folder", real()))
    assert_close(program(X)[0], real()(X))
    assert mmap.ACCESS_READ in asked


@torch.inference_mode()
def test_weights_opened_in_inference_mode_are_saved_as_written(tmp_path: Path) -> None:
    program = fake(optimize=False)
    program.apply_weights(stored_in(tmp_path, "folder", real()))
    program.model.graph.initializers["linear.weight"].const_value.raw.zero_()
    program.save(tmp_path / "model.onnx")
    loaded = onnx_aot.ONNXProgram.load(tmp_path / "model.onnx")
    assert not loaded.compute_values(["linear.weight"], (X,))[0].any()


def test_weights_are_folded_when_they_are_there(tmp_path: Path) -> None:
    net, program = real(), fake()
    program.apply_weights(stored_in(tmp_path, "folder", net))
    before = len(program.model.graph)
    counts = program.optimize()
    assert counts
    assert len(program.model.graph) < before
    assert_close(program(X)[0], net(X))


def test_folded_weights_follow_a_checkpoint(tmp_path: Path) -> None:
    first, net = real(), real()
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.copy_(tensor * 2)
    program = onnx_aot.export(first, (X,), dynamic_shapes=({0: "batch"},))
    program.apply_weights(stored_in(tmp_path, "folder", net))
    assert_close(program(X)[0], net(X))
    program.apply_weights({k: v.double() for k, v in first.state_dict().items()}, cast=True)
    assert_close(program(X)[0], first(X))


@pytest.mark.parametrize("kind", ["dict", "folder"])
def test_types_are_cast_when_asked(kind: str, tmp_path: Path) -> None:
    net = real().half()
    state = stored_in(tmp_path, kind, net)
    program = fake()
    message = r"embed.weight is FLOAT\[8,32\] in the model, FLOAT16\[8,32\] was given; cast=True"
    with pytest.raises(InvalidOptionError, match=message):
        program.apply_weights(state)
    program.apply_weights(state, cast=True)
    held = program.model.graph.initializers["linear.weight"].const_value
    assert isinstance(held, CastTensor)
    assert repr(held).startswith("CastTensor<")
    assert_close(program(X)[0], net.float()(X))
    program.apply_weights(real().state_dict())  # the model's own type is unchanged
    assert_close(program(X)[0], real()(X))


def test_all_that_does_not_fit_is_told_at_once() -> None:
    program = fake()
    state = real().state_dict()
    del state["norm.running_mean"], state["linear.bias"]
    state["norm.weight"] = torch.ones(33)
    state["linear.weight"] = state["linear.weight"].double()
    state["stranger"] = torch.ones(1)
    with pytest.raises(InvalidOptionError) as caught:
        program.apply_weights(state)
    message = str(caught.value)
    for part in (
        "norm.weight is FLOAT[32] in the model, FLOAT[33] was given",
        "linear.weight is FLOAT[32,32] in the model, DOUBLE[32,32] was given; cast=True casts it",
        "2 are missing: linear.bias, norm.running_mean",
        "1 were given that it does not have: stranger",
        "Nothing was applied",
    ):
        assert part in message
    with pytest.raises(SaveError, match="5 weights have no values yet"):
        program.save("never.onnx")


def test_weights_in_parts() -> None:
    net, program = real(), fake()
    state = net.state_dict()
    halves = [{name: state[name] for name in list(state)[n::2]} for n in range(2)]
    with pytest.raises(InvalidOptionError, match=r"of the model are missing: .*partial=True"):
        program.apply_weights(halves[0])
    for half in halves:
        program.apply_weights(half, partial=True)
    assert_close(program(X)[0], net(X))
    with pytest.warns(OnnxExporterWarning, match="no weight 'stranger'"):
        program.apply_weights({"stranger": X})


def test_weights_that_are_inputs(tmp_path: Path) -> None:
    net = real()
    program = fake(weights_as_inputs=["linear.*"])
    with pytest.raises(InferenceError, match="has no values yet"):
        program(X)
    state = net.state_dict()
    with pytest.raises(InvalidOptionError, match=r"missing: .*linear\.weight"):
        program.apply_weights({n: t for n, t in state.items() if not n.startswith("linear")})
    program.apply_weights(stored_in(tmp_path, "folder", net))
    assert_close(program(X)[0], net(X))
    program.weights["linear.weight"].zero_()  # the copy in memory is not part of the file
    program.apply_weights(tmp_path)
    assert_close(program(X)[0], net(X))


def test_what_needs_values_is_left_out(tmp_path: Path) -> None:
    with onnx_aot.enable_fake_mode():
        net = Net().eval()
    with pytest.warns(OnnxExporterWarning, match="was not verified"):
        program = onnx_aot.export(net, (X,), verify=True, report=True, artifacts_dir=tmp_path)
    assert not program.has_values
    with pytest.raises(SaveError, match="no values yet"):
        program(X)
    program.apply_weights(real().state_dict())
    assert program.has_values


def test_a_model_in_torchs_own_fake_mode() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    program = onnx_aot.export(net, (torch.ones(2, 3),))
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    program.apply_weights(other.state_dict())
    assert_close(program(torch.ones(2, 3))[0], other(torch.ones(2, 3)))


def test_a_model_on_the_meta_device() -> None:
    with torch.device("meta"):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    program = onnx_aot.export(net, (torch.ones(2, 3),))
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    program.apply_weights(other.state_dict())
    assert_close(program(torch.ones(2, 3))[0], other(torch.ones(2, 3)))


def test_fake_mode_leaves_other_models_alone(tmp_path: Path) -> None:
    net = real()
    with onnx_aot.enable_fake_mode():
        program = onnx_aot.export(net, (X,))  # a capture creates modules too
        loaded = Net()
        with pytest.warns(UserWarning, match="no-op"):
            loaded.load_state_dict(net.state_dict())
        lazy = torch.nn.LazyLinear(3)
    assert_close(program(X)[0], net(X))
    assert loaded.linear.weight.is_meta
    assert isinstance(lazy.weight, torch.nn.UninitializedParameter)
    assert not torch.nn.Linear(1, 1).weight.is_meta
