"""Query strings, read strictly: a name that is misspelt, or given twice, is an error and never a wider answer."""

from collections import Counter
from urllib.parse import parse_qsl

from app.errors import BadRequest, FieldError, Invalid


def check(query: bytes, known: frozenset[str]) -> None:
    """Raises BadRequest for what is no UTF-8, and Invalid with the pointer of each parameter at fault."""
    if not query:
        return
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as fault:
        raise BadRequest("The query string is not percent-encoded UTF-8.") from fault
    times = Counter(name for name, _ in pairs)
    errors = [FieldError(_pointer(name), "this parameter is not known") for name in times if name not in known]
    errors += [FieldError(_pointer(name), "must be given once") for name in times if name in known and times[name] > 1]
    errors += [FieldError(_pointer(name), "must not contain NUL") for name, value in pairs if "\0" in value]
    if errors:
        raise Invalid(f"{errors[0].pointer}: {errors[0].detail}", errors=errors[:20])


def _pointer(name: str) -> str:
    return "/query/" + name[:128].replace("~", "~0").replace("/", "~1")
