"""Make tests/embedding/data/*.onnx: cross-encoders whose scores a test can compute by hand. Needs the package onnx.

overlap.onnx   inputs with token types, output (n, 1): how many tokens of the text are tokens of the query, too.
brevity.onnx   inputs without token types, output (n,): minus the number of tokens, so that the shortest text is best.
classes.onnx   output (n, 2): not a reranker, to be refused.
"""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

DATA = Path(__file__).resolve().parent / "data"
SPECIAL = 999
"""Tokens up to this id ([CLS], [SEP], padding) count for nothing, in MiniLM's vocabulary."""


def integers(name: str, *values: int) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)] if len(values) > 1 else [], values)


def axis(name: str, place: int) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [1], [place])


def save(name: str, nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], columns: int, *inputs: str) -> None:
    given = [helper.make_tensor_value_info(each, TensorProto.INT64, ["n", "tokens"]) for each in inputs]
    shape = ["n", columns] if columns else ["n"]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, name, given, [logits], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(DATA / f"{name}.onnx"))


def overlap() -> None:
    node = helper.make_node
    nodes = [
        node("Greater", ["input_ids", "special"], ["word"]),
        node("Equal", ["token_type_ids", "one"], ["second"]),
        node("Equal", ["attention_mask", "one"], ["present"]),
        node("Not", ["second"], ["first"]),
        node("And", ["word", "present"], ["counted"]),
        node("And", ["counted", "second"], ["in_text"]),
        node("And", ["counted", "first"], ["in_query"]),
        node("Unsqueeze", ["input_ids", "last"], ["down"]),
        node("Unsqueeze", ["input_ids", "middle"], ["across"]),
        node("Equal", ["down", "across"], ["same"]),  # (n, tokens of the text, tokens of the query)
        node("Unsqueeze", ["in_text", "last"], ["rows"]),
        node("Unsqueeze", ["in_query", "middle"], ["columns"]),
        node("And", ["rows", "columns"], ["pairs"]),
        node("And", ["same", "pairs"], ["met"]),
        node("Cast", ["met"], ["met_number"], to=TensorProto.FLOAT),
        node("ReduceMax", ["met_number"], ["hit"], axes=[2], keepdims=0),
        node("ReduceSum", ["hit", "middle"], ["logits"], keepdims=1),
    ]
    constants = [integers("special", SPECIAL), integers("one", 1), axis("last", 2), axis("middle", 1)]
    save("overlap", nodes, constants, 1, "input_ids", "attention_mask", "token_type_ids")


def brevity() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask", "tokens"], ["length"], keepdims=0),
        helper.make_node("Neg", ["length"], ["negative"]),
        helper.make_node("Cast", ["negative"], ["without_ids"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["input_ids"], ["largest"], axes=[1], keepdims=0),
        helper.make_node("Mul", ["largest", "zero"], ["nothing"]),
        helper.make_node("Cast", ["nothing"], ["nothing_number"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["without_ids", "nothing_number"], ["logits"]),
    ]
    save("brevity", nodes, [axis("tokens", 1), integers("zero", 0)], 0, "input_ids", "attention_mask")


def classes() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask", "tokens"], ["length"], keepdims=1),
        helper.make_node("ReduceMax", ["input_ids"], ["largest"], axes=[1], keepdims=1),
        helper.make_node("Concat", ["length", "largest"], ["both"], axis=1),
        helper.make_node("Cast", ["both"], ["logits"], to=TensorProto.FLOAT),
    ]
    save("classes", nodes, [axis("tokens", 1)], 2, "input_ids", "attention_mask")


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    overlap()
    brevity()
    classes()
    print(*(f"{path.name}: {path.stat().st_size} bytes" for path in sorted(DATA.iterdir())), sep="\n")
