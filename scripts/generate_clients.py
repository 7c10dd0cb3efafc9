"""Write the clients' generated parts from openapi/openapi.json: scripts/generate_clients.py [python] [typescript]

clients/python/recalld_client/_generated.py: the shapes as TypedDicts, and a method for each operation; by this script,
for what generators make of the document is 339 files of 55,000 lines. clients/python/recalld_client/_sync: the modules
of _async without `await` (scripts/unasync_client.py). clients/typescript/schema.d.ts: by openapi-typescript, which npm
fetches; then `clients/typescript/src` is compiled to `lib`, which is committed, so that a checkout installs without a
compiler. A test fails where one of them was made from something else.
"""

import hashlib
import json
import keyword
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from scripts import unasync_client

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "openapi" / "openapi.json"
PYTHON = ROOT / "clients" / "python" / "recalld_client" / "_generated.py"
TYPESCRIPT = ROOT / "clients" / "typescript" / "schema.d.ts"
GENERATOR = "openapi-typescript@7.13.0"
COMPILER = "typescript@5.9.3"

_HEAD = '''"""Made by scripts/generate_clients.py; do not edit. Contract {fingerprint}."""

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from recalld_client._async.transport import AsyncTransport
from recalld_client._requests import path
from recalld_client._sync.transport import Transport

Json: TypeAlias = dict[str, Any]'''

Json = dict[str, Any]
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "object": "Json"}
_ARGUMENTS = {"If-Match": "int | str"}  # a record's version, too
_NOISE = frozenset({"example", "examples", "title", "pattern", "minLength", "maxLength", "minimum", "maximum"})
_ERRORS = re.compile("[45]..")
_BODY_OPTIONS = {
    "MemoryOptions": ("MemoryCreate", "agent_id user_id content"),
    "SearchOptions": ("SearchRequest", "agent_id user_id query top_k fields"),
    "ContextOptions": ("ContextRequest", "agent_id user_id query token_budget session_id"),
    "FactOptions": ("FactCreate", "agent_id user_id subject predicate object"),
    "FactSearchOptions": ("FactSearch", "agent_id user_id query top_k"),
}
"""Keyword arguments of the hand-written methods: the fields of a body, but for those that they name themselves."""
_QUERY_OPTIONS = {"MemoryFilter": "list_memories", "FactFilter": "list_facts", "SessionFilter": "list_sessions"}
"""The same of an operation's query."""


def document() -> Json:
    """The contract as clients need it: every error is one `default`, and what only documents it is left out."""
    found: Json = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    for item in found["paths"].values():
        for operation in item.values():
            good = {status: r for status, r in operation["responses"].items() if not _ERRORS.fullmatch(status)}
            operation["responses"] = {**good, "default": {"$ref": "#/components/responses/Problem"}}
            for response in good.values():
                response.pop("headers", None)
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found["components"]["responses"] = {"Problem": {"description": "What went wrong", "content": content}}
    found["components"].pop("headers")
    lean: Json = _lean(found)
    return lean


def _lean(node: Any, names: bool = False) -> Any:
    """`names`: the keys of this object are names of ours and not words of the specification."""
    if isinstance(node, list):
        return [_lean(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {name: value for name, value in node.items() if names or name not in _NOISE}
    return {name: _lean(value, name in ("properties", "schemas", "paths")) for name, value in kept.items()}


def fingerprint() -> str:
    return hashlib.sha256(json.dumps(document(), sort_keys=True).encode()).hexdigest()[:32]


def python_rendered() -> str:
    made = document()
    operations = list(_operations(made))
    parts = [_HEAD.format(fingerprint=fingerprint())]
    parts += [_shape(name, schema) for name, schema in made["components"]["schemas"].items()]
    parts += [_options(made, name, *source) for name, source in _BODY_OPTIONS.items()]
    parts += [_filters(operations, name, source) for name, source in _QUERY_OPTIONS.items()]
    for name, base, sync in (("Operations", "Transport", True), ("AsyncOperations", "AsyncTransport", False)):
        methods = "\n\n".join(_method(*operation, sync=sync) for operation in operations)
        parts.append(f"class {name}({base}):\n{methods}")
    return "\n\n\n".join(parts) + "\n"


def _shape(name: str, schema: Json) -> str:
    """Answers leave out nothing that they declare; of requests what has a default may be left out."""
    if "properties" not in schema:
        return f"{_class(name)}: TypeAlias = {_type(schema)}"
    required = set(schema.get("required", []))
    kinds = {field: _type(of_field) for field, of_field in schema["properties"].items()}
    kinds = {field: kind if field in required else f"NotRequired[{kind}]" for field, kind in kinds.items()}
    if any(keyword.iskeyword(field) for field in kinds):  # a class cannot have it
        entries = "".join(f'    "{field}": {kind},\n' for field, kind in kinds.items())
        return f'{_class(name)} = TypedDict("{_class(name)}", {{\n{entries}}})'
    fields = [f"    {field}: {kind}" for field, kind in kinds.items()]
    about = f'    """{_line(schema["description"])}"""\n\n' if "description" in schema else ""
    return f"class {_class(name)}(TypedDict):\n{about}" + "\n".join(fields)


def _options(made: Json, name: str, shape: str, named: str) -> str:
    schema = made["components"]["schemas"][shape]
    left = {field: kind for field, kind in schema["properties"].items() if field not in named.split()}
    return _shape(name, {"description": f"Optional fields of {shape}.", "properties": left})


def _filters(operations: list[tuple[str, str, Json]], name: str, operation_id: str) -> str:
    (parameters,) = (o["parameters"] for _, _, o in operations if o["operationId"] == operation_id)
    left = {p["name"]: p["schema"] for p in parameters if p["name"] not in ("agent_id", "user_id", "cursor")}
    spelled: dict[str, Json | list[Any]] = {
        "filters": {},
        "metadata": {},
        "tags": [],
        "exclude_tags": [],
    }  # JSON in the query string
    for param in left.keys() & spelled.keys():
        kind = {"type": "object"} if spelled[param] == {} else {"type": "array", "items": {"type": "string"}}
        left[param] = {"anyOf": [kind, left[param]]}
    return _shape(name, {"description": f"Filters of {operation_id}; limit: items of a page.", "properties": left})


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return f'"{_class(schema["$ref"].rpartition("/")[2])}"'
    if "anyOf" in schema:
        options = list(dict.fromkeys(_type(one) for one in schema["anyOf"]))
        if any(option.startswith('"') for option in options):  # a name in quotes cannot be one side of |
            return '"' + " | ".join(option.strip('"') for option in options) + '"'
        return " | ".join(options)
    if "enum" in schema or "const" in schema:
        return f"Literal[{', '.join(json.dumps(v) for v in schema.get('enum', [schema.get('const')]))}]".replace(
            "true", "True"
        )
    if schema.get("type") == "array":
        inner = _type(schema["items"]) if "items" in schema else "Any"
        return f'"list[{inner[1:-1]}]"' if inner.startswith('"') else f"list[{inner}]"
    if isinstance(schema.get("additionalProperties"), dict) and "properties" not in schema:
        inner = _type(schema["additionalProperties"])
        return f'"dict[str, {inner[1:-1]}]"' if inner.startswith('"') else f"dict[str, {inner}]"
    return _TYPES.get(schema.get("type", ""), "Any")


def _optional(kind: str) -> str:
    return f'"{kind[1:-1]} | None"' if kind.startswith('"') else f"{kind} | None"


def _class(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _operations(made: Json) -> Iterator[tuple[str, str, Json]]:
    for where, item in made["paths"].items():
        for method, operation in item.items():
            if where != "/metrics":  # is for a scraper
                yield method.upper(), where, operation


def _method(method: str, where: str, operation: Json, *, sync: bool) -> str:
    parameters = operation.get("parameters", [])
    inside = [p for p in parameters if p["in"] == "path"]
    named = [(p, _argument(p["name"])) for p in parameters if p["in"] != "path"]
    request = operation.get("requestBody", {})
    body = request.get("content", {}).get("application/json", {}).get("schema")
    arguments = ["self", *(f"{_argument(p['name'])}: {_type(p['schema'])}" for p in inside)]
    if body is not None:
        arguments.append(
            f"body: {_type(body)}" if request.get("required") else f"body: {_optional(_type(body))} = None"
        )
    is_file = body is None and "content" in request
    if is_file:
        arguments += ["content: bytes", 'media_type: str = "application/octet-stream"']
    arguments += ["*"] if named else []
    arguments += [f"{name}: {_optional(_ARGUMENTS.get(p['name'], _type(p['schema'])))} = None" for p, name in named]
    query = ", ".join(f'"{p["name"]}": {name}' for p, name in named if p["in"] == "query")
    sent = [f'"{p["name"]}": {name}' for p, name in named if p["in"] == "header"]
    headers = ", ".join([*(['"Content-Type": media_type'] if is_file else []), *sent])
    asked = [json.dumps(method), _place(where), *([f"query={{{query}}}"] if query else [])]
    asked += [
        *(["body=body"] if body is not None else ["body=content"] if is_file else []),
        *([f"headers={{{headers}}}"] if headers else []),
    ]
    result, call = _result(operation), f"self._call({', '.join(asked)})"
    call = call if sync else f"await {call}"
    last = f"        {call}" if result == "None" else f"        found: {result} = {call}\n        return found"
    head = f"    {'' if sync else 'async '}def {operation['operationId']}({', '.join(arguments)}) -> {result}:"
    return f'{head}\n        """{_line(operation["description"])}"""\n{last}'


def _result(operation: Json) -> str:
    kinds = []
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if status != "default" and content:
            media = content.get("application/json")
            kinds.append("str" if media is None else _type(media["schema"]))
    kinds = list(dict.fromkeys(kinds))
    return kinds[0] if len(kinds) == 1 else " | ".join(kind.strip('"') for kind in kinds) or "None"


def _argument(name: str) -> str:
    plain = name.lower().replace("-", "_")
    return f"{plain}_" if keyword.iskeyword(plain) else plain


def _place(where: str) -> str:
    names = [_argument(name) for name in re.findall(r"\{(\w+)\}", where)]
    return f"path({', '.join([json.dumps(re.sub(r'{.*?}', '{}', where)), *names])})" if names else json.dumps(where)


def _line(text: str) -> str:
    first = re.split(r"(?<=[.:]) ", " ".join(text.split()), maxsplit=1)[0]
    return first.replace("\\", "").replace('"', "'")


def typescript_rendered() -> str:
    """Needs node, and npm or its cache."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "openapi.json", Path(folder) / "schema.d.ts"
        given.write_text(json.dumps(document()), encoding="utf-8")
        command = ["npx", "--yes", GENERATOR, str(given), "-o", str(made), "--default-non-nullable=false"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        head = f"// Made by scripts/generate_clients.py; do not edit. Contract {fingerprint()}.\n"
        return head + _tidied(made.read_text(encoding="utf-8"))


def compile_typescript(folder: Path, *tsc: str) -> None:
    """Compiles clients/typescript/src into a folder. `tsc` is the command of the compiler."""
    subprocess.run([*tsc, "-p", str(TYPESCRIPT.parent), "--outDir", str(folder)], check=True, timeout=300)


def _tidied(made: str) -> str:
    """Without what is never there: types that leave it out refuse it just the same."""
    kept = re.sub(r"\n +\w+\?: never;", "", made)
    kept = re.sub(r"\n +headers: \{\s*\[name: string\]: unknown;\s*\};", "", kept)
    return re.sub(r"parameters: \{\s*\};", "parameters: {};", kept)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["python", "typescript"]
    for name, target, rendered in (
        ("python", PYTHON, python_rendered),
        ("typescript", TYPESCRIPT, typescript_rendered),
    ):
        if name in wanted:
            target.write_text(rendered(), encoding="utf-8")
            print(target)
    if "python" in wanted:
        unasync_client.write()
    if "typescript" in wanted:
        library = TYPESCRIPT.parent / "lib"
        shutil.rmtree(library, ignore_errors=True)
        compile_typescript(library, "npx", "--yes", "--package", COMPILER, "tsc")
        print(library)
