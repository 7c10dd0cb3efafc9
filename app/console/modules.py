"""The modules of the console and what each imports, as their import statements say it.

A browser learns of a module's imports when it has the module, so that each step of a chain of imports waits for an
answer. The page that is sent names all modules of the frame, and the imports of the others, and so all are asked for
at once: `preloads` and `imports` of `index.html`.
"""

import hashlib
import json
import re
from functools import cached_property
from pathlib import Path, PurePosixPath

_IMPORT = re.compile(r"""^(?:import|export)\b(?:[^;"'=]*\bfrom)?\s*["'](\.[^"']+)["']""", re.MULTILINE)
"""`import { html } from "../ui.js"`, `import "./a.js"`, `export { html } from "./ui.js"`, at the start of a line. One
that is made while the page runs, `import("./a.js")`, is none."""
ICONS = "vendor/icons.svg"
FRAME = ("start.js", "api.js", "console.js")
"""What every page needs, in the order in which it is asked for. `start.js` runs first, then `api.js` asks who the
caller is."""


class Modules:
    """The modules of a folder as they are now.

    Args:
        folder: With the modules of the frame and `index.html`.
        names: The files that are served.

    Attributes:
        times: Of the files, as `times` returns them.
        texts: The files by their names.
    """

    def __init__(self, folder: Path, names: frozenset[str]) -> None:
        self._folder = folder
        self.times = times(folder, names)  # before they are read: one that changes meanwhile differs from its time
        self.texts = {name: (folder / name).read_bytes() for name in sorted(names)}
        self._index = (folder / "index.html").read_text(encoding="utf-8")

    @cached_property
    def version(self) -> str:
        """16 hexadecimal digits, others when a file changes. All addresses of modules begin with it, so that browsers
        keep each for good."""
        digest = hashlib.sha256()
        for name, text in self.texts.items():
            digest.update(f"{name} {len(text)}\n".encode() + text)
        return digest.hexdigest()[:16]

    @cached_property
    def index(self) -> str:
        """The page: `index.html` with the version, the modules of the frame, the imports of all others, and the icons.
        To draw a symbol of another file, a browser parses that file as a document first."""
        frame = dict.fromkeys(needed for name in FRAME for needed in self.needs(name))
        links = (f'<link rel="modulepreload" href="{self.version}/{name}">' for name in frame)
        others = {name: self.needs(name) for name in self.texts if name.startswith("pages/") and name not in frame}
        imports = {name: [needed for needed in needs if needed not in frame] for name, needs in others.items()}
        return (
            self._index.replace("{version}", self.version)
            .replace("{preloads}", "\n  ".join(links))
            .replace("{imports}", json.dumps(imports, separators=(",", ":")))
            .replace("{icons}", self.texts[ICONS].decode())
        )

    def holds(self, name: str) -> bool:
        """Returns whether the file is still as it was read."""
        try:
            return (self._folder / name).stat().st_mtime_ns == self.times[name]
        except FileNotFoundError:
            return False

    def needs(self, name: str) -> list[str]:
        """Returns the module and all that it imports, what is nearest to it first: `["a.js", "ui.js", "vendor/x.mjs"]`.
        Raises KeyError where a module imports a file that is not served."""
        needs = [name]
        for module in needs:
            places = _IMPORT.findall(self.texts[module].decode())
            imports = dict.fromkeys(_place(PurePosixPath(module).parent, place) for place in places)
            needs += [needed for needed in imports if needed not in needs]
        return needs


def times(folder: Path, names: frozenset[str]) -> dict[str, int]:
    """Returns when each file and `index.html` was changed last, in nanoseconds."""
    return {name: (folder / name).stat().st_mtime_ns for name in ("index.html", *names)}


def _place(folder: PurePosixPath, place: str) -> str:
    """Returns the name of a file: `_place("pages", "../ui.js")` is `ui.js`."""
    for part in place.split("/"):
        folder = folder.parent if part == ".." else folder / part
    return folder.as_posix()
