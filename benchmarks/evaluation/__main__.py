"""Evaluates the service on sets of conversations: `python -m benchmarks.evaluation recall|prompts|merging [options]`.

`recall` asks each question as a search, `prompts` as a context; `merging` asks the rule by which near texts are merged.
The first two need a running service and start one without --url. Each conversation becomes a user of its own. Its
messages go in through /v1/sessions/{id}/messages, with speaker and time, its facts through /v1/memories/batch with
`event_at`. A question that is asked when only the first items are known is asked before the others go in.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from benchmarks.evaluation import merging, prompts, recall, sets
from benchmarks.harness import folder, recalld

REQUEST_SECONDS = 300
COMMANDS = {"recall": recall, "prompts": prompts, "merging": merging}


@contextmanager
def connection(url: str | None, key: str | None, *, background: bool = True) -> Iterator[httpx.Client]:
    """A client of the service at `url`; without `url`, of a fresh service that stops when the block ends.

    Without `background` the fresh service runs no background work: it holds what was stored, and nothing else."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with ExitStack() as stack:
        if url is None:
            data = stack.enter_context(folder())
            url = stack.enter_context(recalld(data, jobs=background)).url
        yield stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=REQUEST_SECONDS))


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="evaluate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, module in COMMANDS.items():
        described = f"{module.__doc__}\n{sets.__doc__ if module is not merging else ''}"
        command = commands.add_parser(name, description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
        if module is not merging:
            command.add_argument("--url", help="a running service; without it one is started")
            command.add_argument("--key", help="its API key")
            command.add_argument("--conversations", type=int, help="only the first N of each file")
            command.add_argument("--limit", type=int, help="only N questions of each conversation, spread over all")
            command.add_argument("--wall-clock", action="store_true", help="ask without `now`")
            command.add_argument("--json", type=Path, help="write the figures here too")
        module.add_options(command)
    return parser.parse_args(arguments)


def main() -> None:
    options = read_options()
    if options.command == "merging":
        merging.run(options)
        return
    module = COMMANDS[options.command]
    asked = module.load(options)
    background = options.command == "prompts" or options.summaries
    with connection(options.url, options.key, background=background) as client:
        module.run(client, asked, options)


if __name__ == "__main__":
    main()
