"""A product whose search finds a user's texts with the most words of the query: python fake_product.py PORT FILE"""

import json
import sys
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

port, file = sys.argv[1:]
kept: dict[str, list[str]] = defaultdict(list)
if Path(file).exists():
    kept.update(json.loads(Path(file).read_text()))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = kept[body["user"]]
        if self.path == "/add":
            texts += body["texts"]
            Path(file).write_text(json.dumps(kept))
            self._answer({})
            return
        words = set(body["query"].split())
        found = sorted(texts, key=lambda text: -len(words & set(text.split())))
        self._answer({"results": [{"text": text} for text in found[:10]]})

    def log_message(self, *_: object) -> None: ...

    def _answer(self, value: object) -> None:
        sent = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
