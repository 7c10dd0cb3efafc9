"""Teaches a judge of relevance, which reads a query and a memory together: python -m benchmarks.train.relevance OUT …

    python -m benchmarks.train.hits make train.jsonl benchmarks/data/lives/train
    python -m benchmarks.train.relevance OUT --base FOLDER --hits train.jsonl       # goes on where it was stopped
    python -m benchmarks.train.relevance OUT --base FOLDER --judge choose.jsonl     # adds the judge's numbers
    python -m benchmarks.train.hits measure choose.jsonl

Of each question it sees one memory that answers it and first hits of the ranking that do not. Of a question that was
never answered, and of small talk, it sees first hits alone. Two losses are added: that the answer has the highest
number of its question, and that the number is the log-odds of an answer.

`--apart`: as many of the six layers read query and memory each on its own and are not taught: their vectors are made
once for each text, so that the other layers see several times as many questions in the same time.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

MOST_CHARACTERS, MOST_TOKENS = 320, 80
SLOPE, OFFSET = 10.0, -10.0
"""Log-odds of an answer by the cosine of the means of both parts: what the judge begins with. The first hits of the
ranking have cosines of .79 ± .08, when only the upper two layers read both."""
TOGETHER = 16
"""Pairs of like length that are read in one run."""


class Judge(torch.nn.Module):  # type: ignore[misc]
    """Gives the log-odds that a memory answers a query.

    Both texts' vectors go through the upper layers as one text. The number is linear in the product of the means of
    both parts, as a cosine is, and in the means. So it begins as good as the encoder whose weights it has.
    """

    def __init__(self, base: str, apart: int) -> None:
        super().__init__()
        from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.bert = AutoModel.from_pretrained(base, add_pooling_layer=False)
        self.lower, self.upper = self.bert.encoder.layer[:apart], self.bert.encoder.layer[apart:]
        for part in (self.bert.embeddings, self.lower):
            part.requires_grad_(requires_grad=False)
        width = self.bert.config.hidden_size
        self.line = torch.nn.Linear(3 * width, 1)
        with torch.no_grad():
            self.line.weight.zero_()[:, :width] = SLOPE
            self.line.bias.fill_(OFFSET)
        self.dropout = torch.nn.Dropout(0.1)
        self.known: dict[str, Any] = {}

    def read(self, texts: Sequence[str]) -> None:
        """Makes the vectors of the lower layers, of texts that have none yet."""
        missing = sorted({text for text in texts if text not in self.known}, key=len)
        self.eval()
        for begin in range(0, len(missing), TOGETHER):
            some = missing[begin : begin + TOGETHER]
            tokens = self.tokenizer(
                [text[:MOST_CHARACTERS] for text in some], padding=True, truncation=True, max_length=MOST_TOKENS,
                return_tensors="pt", return_token_type_ids=False,
            )  # fmt: skip
            mask = tokens["attention_mask"].bool()
            with torch.no_grad():
                vectors = self.bert.embeddings(input_ids=tokens["input_ids"])
                for layer in self.lower:
                    vectors = layer(vectors, mask[:, None, None, :])
            self.known |= {text: of[: int(own.sum())] for text, of, own in zip(some, vectors, mask, strict=True)}

    def forward(self, of: Sequence[tuple[str, str]]) -> Any:
        order = sorted(range(len(of)), key=lambda place: sum(len(self.known[text]) for text in of[place]))
        parts = [self._run([of[place] for place in order[at : at + TOGETHER]]) for at in range(0, len(of), TOGETHER)]
        return torch.cat(parts)[torch.argsort(torch.tensor(order))]

    def _run(self, of: Sequence[tuple[str, str]]) -> Any:
        rows = [torch.cat([self.known[query], self.known[memory]]) for query, memory in of]
        vectors = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        places = torch.arange(vectors.shape[1])[None]
        begins, ends = (
            torch.tensor(each)[:, None]
            for each in zip(
                *[(len(self.known[q]), len(row)) for (q, _), row in zip(of, rows, strict=True)], strict=True
            )
        )
        for layer in self.upper:
            vectors = layer(vectors, (places < ends)[:, None, None, :])
        asked, told = (
            _unit((vectors * mask[:, :, None]).sum(1))
            for mask in (places < begins, (places >= begins) & (places < ends))
        )
        return self.line(torch.cat([asked * told, self.dropout(asked), self.dropout(told)], 1))[:, 0]


def _unit(vectors: Any) -> Any:
    return torch.nn.functional.normalize(vectors, dim=-1)


def read_by_word(judge: Judge, text: str) -> bool:
    """False for a script that the tokenizer knows by single letters only."""
    return len(judge.tokenizer.tokenize(text)) < len(text) / 2


def rows_of(asked: dict[str, Any], others: int, chance: random.Random) -> list[tuple[str, str]]:
    """The pairs of a question, the right one first if there is one."""
    wrong = [hit["text"] for hit in asked["hits"] if not hit["right"]]
    shown = chance.sample(asked["answers"], min(1, len(asked["answers"])))
    shown += chance.sample(wrong, min(others, len(wrong)))
    return [(asked["query"], text) for text in shown]


def loss_of(judge: Judge, batch: Sequence[dict[str, Any]], others: int, chance: random.Random) -> Any:
    rows = [rows_of(asked, others, chance) for asked in batch]
    every = [pair for each in rows for pair in each]
    judge.read([text for pair in every for text in pair])
    judge.train()
    odds, truth, losses, begin = judge(every), torch.zeros(len(every)), [], 0
    for asked, each in zip(batch, rows, strict=True):
        if asked["answers"]:
            truth[begin] = 1
            losses.append(-torch.log_softmax(odds[begin : begin + len(each)], 0)[0])
        begin += len(each)
    order = torch.stack(losses).mean() if losses else odds.sum() * 0
    return order, torch.nn.functional.binary_cross_entropy_with_logits(odds, truth)


def teach(judge: Judge, batches: Sequence[Any], given: argparse.Namespace) -> None:
    """The rate falls to 0 with the last batch, or when the minutes are over."""
    fresh = list(judge.line.parameters())
    groups: list[dict[str, Any]] = [
        {"params": list(judge.upper.parameters()), "lr": given.rate},
        {"params": fresh, "lr": 10 * given.rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    state, begin, spent = given.out / "state.pt", 0, 0.0
    if state.exists():
        kept = torch.load(state, weights_only=True)
        judge.load_state_dict(kept["judge"])
        optimizer.load_state_dict(kept["optimizer"])
        begin, spent = kept["step"], kept["spent"]
    started, means = time.monotonic() - spent, None
    for step in range(begin, len(batches)):
        done = max(step / len(batches), (time.monotonic() - started) / 60 / given.minutes)
        if done >= 1:
            break
        for group, most in zip(optimizer.param_groups, (given.rate, 10 * given.rate), strict=True):
            group["lr"] = most * min((step + 1) / 20, 1 - done)
        losses = loss_of(judge, batches[step], given.others, random.Random(given.seed + step))
        sum(losses).backward()
        torch.nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        now = np.array([loss.item() for loss in losses])
        means = now if means is None else 0.95 * means + 0.05 * now
        if step % 10 == 9:
            spent, work = time.monotonic() - started, time.process_time()
            told = f"order {means[0]:.3f}, odds {means[1]:.3f}, {spent:.0f} s, processor {work:.0f} s"
            print(f"step {step + 1} of {len(batches)}, {told}", flush=True)
        begin = step + 1
        if begin % 20 == 0:
            save(judge, optimizer, begin, time.monotonic() - started, state)
    save(judge, optimizer, begin, time.monotonic() - started, state)


def save(judge: Judge, optimizer: Any, step: int, spent: float, state: Path) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    kept = {"judge": judge.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "spent": spent}
    torch.save(kept, state.with_suffix(".new"))
    state.with_suffix(".new").replace(state)


def judged(judge: Judge, asked: dict[str, Any]) -> dict[str, Any]:
    """The question with the judge's number at each of its hits."""
    pairs = [(asked["query"], hit["text"]) for hit in asked["hits"]]
    judge.read([text for pair in pairs for text in pair])
    judge.eval()
    with torch.no_grad():
        numbers = judge(pairs).tolist() if pairs else []
    return {**asked, "hits": [{**hit, "judged": one} for hit, one in zip(asked["hits"], numbers, strict=True)]}


def _read(file: Path, every: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[::every]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers with the weights to begin with")
    parser.add_argument("--hits", type=Path, help="what is taught")
    parser.add_argument("--judge", type=Path, nargs="*", default=[], help="files that get the judge's numbers")
    parser.add_argument("--every", type=int, default=1, help="judge only every so many-th question of a file")
    parser.add_argument("--apart", type=int, default=0, help="layers that read each text on its own")
    parser.add_argument("--others", type=int, default=5, help="memories a question that do not answer it")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=90, help="at most")
    parser.add_argument("--batch", type=int, default=8, help="questions")
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    torch.manual_seed(given.seed)
    torch.set_num_threads(given.threads)
    judge = Judge(given.base, given.apart)
    if given.hits:
        found = [asked for asked in _read(given.hits) if asked["hits"] and read_by_word(judge, asked["query"])]
        chance = random.Random(given.seed)
        row = [asked for _ in range(given.epochs) for asked in chance.sample(found, len(found))]
        batches = [row[begin : begin + given.batch] for begin in range(0, len(row), given.batch)]
        print(f"{len(found)} questions, {len(batches)} batches", flush=True)
        teach(judge, batches, given)
    elif (state := given.out / "state.pt").exists():
        judge.load_state_dict(torch.load(state, weights_only=True)["judge"])
    for file in given.judge:
        found = [judged(judge, asked) for asked in _read(file, given.every)]
        lines = (json.dumps(asked, ensure_ascii=False) + "\n" for asked in found)
        file.with_suffix(".judged.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
