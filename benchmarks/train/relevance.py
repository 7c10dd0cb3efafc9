"""Teaches a judge of relevance, which reads a query and a memory together: python -m benchmarks.train.relevance OUT …

    python -m benchmarks.train.hits make train.jsonl benchmarks/data/lives/train
    python -m benchmarks.train.hits split train.jsonl          # into train.taught.jsonl and train.fit.jsonl
    python -m benchmarks.train.relevance OUT --base FOLDER --hits train.taught.jsonl    # goes on where stopped
    python -m benchmarks.train.relevance OUT --base FOLDER --judge train.fit.jsonl choose.jsonl
    python -m benchmarks.train.hits measure choose.judged.jsonl --fit train.fit.judged.jsonl

A question is a list: one memory that answers it, and first hits of the ranking that do not. The judge gives each memory
a number, and "none of them" has the number 0. The loss is the cross-entropy of the right choice. Of a question that was
never answered, and of small talk, no memory of the list is right, so "none of them" is; and it is for a question that
was answered, once the answer is taken from its list (`--without`: weight of that loss), so that the wording of the
question alone says less.

`--kind cross` reads both texts as one in its upper layers, `--kind late` each on its own and compares their tokens'
vectors. `--kind query` is a control: it sees the query alone.
"""

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.train.asked import Asked, read, used, write
from benchmarks.train.cross import precision

MOST_CHARACTERS, MOST_QUERY, MOST_MEMORY = 400, 28, 65
"""With four marks a pair has up to 97 tokens."""
SLOPE, HARDLY = 10.0, -1.0
"""A cross-encoder's number by the cosine of the means of both parts, and the mean number of some pairs: what it begins
with."""
TOGETHER = 16
"""Pairs of like length that are read in one run."""
WARM = 30

Pair: TypeAlias = tuple[str, str]


class Texts:
    """The tokens of texts, each made once."""

    def __init__(self, base: str) -> None:
        from transformers import AutoTokenizer  # noqa: PLC0415

        self._tokenizer, self._known = AutoTokenizer.from_pretrained(base), dict[str, list[int]]()

    def tokens(self, text: str, most: int) -> list[int]:
        if text not in self._known:
            self._known[text] = self._tokenizer(text[:MOST_CHARACTERS], add_special_tokens=False)["input_ids"]
        return self._known[text][:most]

    def marked(self, *parts: Sequence[int]) -> list[int]:
        """The parts as one text for the model."""
        mark = self._tokenizer.sep_token_id
        return [self._tokenizer.cls_token_id, *(token for part in parts for token in (*part, mark))]

    def read_by_word(self, text: str) -> bool:
        """False for a script that the tokenizer knows by single letters only."""
        return len(self._tokenizer.tokenize(text)) < len(text) / 2


def read_model(base: str) -> Any:
    from transformers import AutoModel  # noqa: PLC0415

    return AutoModel.from_pretrained(base, add_pooling_layer=False, attention_probs_dropout_prob=0.0)


class Cross(torch.nn.Module):  # type: ignore[misc]
    """Gives the log-odds that a memory answers a query, against "none of them".

    So many upper `layers` read both as one text and are taught. The layers under them read each text on its own and are
    not taught, so that their vectors are made once for each text. The number is linear in the product of the means of
    both parts, as a cosine is, in the means, and in the first token's vector. So it begins near the encoder whose
    weights it has.
    """

    def __init__(self, base: str, layers: int) -> None:
        super().__init__()
        self.texts, bert = Texts(base), read_model(base)
        apart = len(bert.encoder.layer) - layers
        self._lower = (bert.embeddings.eval(), bert.encoder.layer[:apart].eval())  # a tuple: no weights of this module
        self.upper = bert.encoder.layer[apart:]
        width = bert.config.hidden_size
        self.line = torch.nn.Linear(4 * width, 1)
        with torch.no_grad():
            self.line.weight.zero_()[:, :width] = SLOPE
        self.dropout = torch.nn.Dropout(0.1)
        self._known: dict[str, Any] = {}

    @property
    def fresh(self) -> list[Any]:
        return list(self.line.parameters())

    def begin(self, of: Sequence[Pair]) -> None:
        """Makes the mean number of some pairs that of a memory that hardly answers."""
        self.eval()
        with torch.no_grad():
            self.line.bias += HARDLY - self(of).mean()

    def vectors(self, text: str, most: int) -> Any:
        """Of the tokens of a text, as the lower layers make them."""
        if text not in self._known:
            embeddings, layers = self._lower
            with torch.no_grad(), precision():
                found = embeddings(input_ids=torch.tensor([self.texts.marked(self.texts.tokens(text, most))]))
                for layer in layers:
                    found = layer(found)
            self._known[text] = found[0].half()
        return self._known[text]

    def forward(self, of: Sequence[Pair]) -> Any:
        rows = [(self.vectors(query, MOST_QUERY), self.vectors(memory, MOST_MEMORY)) for query, memory in of]
        order = sorted(range(len(of)), key=lambda place: len(rows[place][0]) + len(rows[place][1]))
        parts = [self._run([rows[place] for place in order[at : at + TOGETHER]]) for at in range(0, len(of), TOGETHER)]
        return torch.cat(parts)[torch.argsort(torch.tensor(order))]

    def _run(self, rows: Sequence[tuple[Any, Any]]) -> Any:
        vectors, there = _padded([torch.cat(both) for both in rows])
        begins = torch.tensor([len(query) for query, _ in rows])[:, None]
        of_query = torch.arange(vectors.shape[1])[None] < begins
        with precision():
            for layer in self.upper:
                vectors = layer(vectors, there[:, None, None, :])
        vectors = vectors.float()
        asked, told = (_unit((vectors * mask[:, :, None]).sum(1)) for mask in (of_query, there & ~of_query))
        rest = self.dropout(torch.cat([asked, told, vectors[:, 0]], 1))
        return self.line(torch.cat([asked * told, rest], 1))[:, 0]


def _unit(vectors: Any) -> Any:
    return torch.nn.functional.normalize(vectors, dim=-1)


class Late(torch.nn.Module):  # type: ignore[misc]
    """Gives the same by comparing the vectors that the encoder, which is not taught, gives the tokens of each text.

    Each token of the query is put beside what it attends to in the memory, a small network says what that is worth, and
    the mean and the least of all tokens make the number (decomposable attention, Parikh et al. 2016). `kernels`: how
    many of the memory's tokens lie at each distance of a query's token (K-NRM, Xiong et al. 2017).
    """

    KERNELS = torch.linspace(-0.1, 1.0, 12)
    WIDTH = 64

    def __init__(self, base: str) -> None:
        super().__init__()
        self.texts, self._bert = Texts(base), (read_model(base).eval(),)
        width = self._bert[0].config.hidden_size
        self.turned = torch.nn.Linear(width, width, bias=False)
        torch.nn.init.eye_(self.turned.weight)
        self.compared = torch.nn.Sequential(
            torch.nn.Linear(3 * width + len(self.KERNELS) + 1, self.WIDTH), torch.nn.GELU(), torch.nn.Dropout(0.2)
        )
        self.weighed = torch.nn.Linear(width, 1)
        self.line = torch.nn.Sequential(
            torch.nn.Linear(2 * self.WIDTH + 2, self.WIDTH), torch.nn.GELU(), torch.nn.Linear(self.WIDTH, 1)
        )
        self.sharp = torch.nn.Parameter(torch.tensor(10.0))
        self._known: dict[str, Any] = {}

    @property
    def fresh(self) -> list[Any]:
        return list(self.parameters())

    def vectors(self, text: str, most: int) -> Any:
        """Of the tokens of a text, of length 1 each; the last one is the mean's."""
        if text not in self._known:
            ids = torch.tensor([self.texts.marked(self.texts.tokens(text, most))])
            with torch.no_grad(), precision():
                found = self._bert[0](input_ids=ids).last_hidden_state[0].float()
            self._known[text] = _unit(torch.cat([found[1:-1], found.mean(0, keepdim=True)])).half()
        return self._known[text]

    def forward(self, of: Sequence[Pair]) -> Any:
        queries, memories = (
            [self.vectors(text, most) for text in texts]
            for texts, most in zip(zip(*of, strict=True), (MOST_QUERY, MOST_MEMORY), strict=True)
        )
        cosine = torch.stack([q[-1].float() @ m[-1].float() for q, m in zip(queries, memories, strict=True)])
        (asked, of_query), (told, of_memory) = (_padded([each[:-1] for each in both]) for both in (queries, memories))
        near = _unit(self.turned(asked)) @ _unit(self.turned(told)).transpose(1, 2)
        near = near.masked_fill(~of_memory[:, None], -1)
        attended = torch.softmax((self.sharp * near).masked_fill(~of_memory[:, None], -1e4), -1) @ told
        kernels = torch.exp(-(((near[..., None] - self.KERNELS) / 0.1) ** 2) / 2) * of_memory[:, None, :, None]
        beside = [asked * attended, asked - attended, asked, torch.log1p(kernels.sum(2)), near.max(2)[0][..., None]]
        worth = self.compared(torch.cat(beside, -1)).masked_fill(~of_query[..., None], 0)
        weight = torch.softmax(self.weighed(asked)[..., 0].masked_fill(~of_query, -1e4), 1)[..., None]
        least = worth.masked_fill(~of_query[..., None], 1e4).min(1)[0].clamp(max=1e3)
        nearest = (near.max(2)[0] * weight[..., 0]).sum(1)
        return self.line(torch.cat([(worth * weight).sum(1), least, cosine[:, None], nearest[:, None]], 1))[:, 0]


class Query(Late):
    """Sees the query alone: what tells never-said questions without any memory tells how the questions were written."""

    def __init__(self, base: str) -> None:
        super().__init__(base)
        self.line = torch.nn.Linear(self.turned.in_features, 1)
        torch.nn.init.zeros_(self.line.weight)

    @property
    def fresh(self) -> list[Any]:
        return list(self.line.parameters())

    def forward(self, of: Sequence[Pair]) -> Any:
        return self.line(torch.stack([self.vectors(query, MOST_QUERY)[-1].float() for query, _ in of]))[:, 0]


KINDS = {"late": Late, "query": Query}


def _padded(rows: Sequence[Any]) -> tuple[Any, Any]:
    """Vectors (texts, tokens, width), and which of them there are."""
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    vectors = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).float()
    return vectors, torch.arange(vectors.shape[1])[None] < lengths


Judge: TypeAlias = Cross | Late


def rows_of(asked: Asked, others: int, chance: random.Random) -> list[Pair]:
    """The pairs of a question, the right one first if there is one."""
    wrong = [hit["text"] for hit in asked["hits"] if not hit["right"]]
    shown = chance.sample(asked["answers"], min(1, len(asked["answers"])))
    shown += chance.sample(wrong, min(others, len(wrong)))
    return [(asked["query"], text) for text in shown]


def loss_of(judge: Judge, batch: Sequence[Asked], given: argparse.Namespace, chance: random.Random) -> Any:
    """Returns the loss of the right choices, of questions that have an answer, and that of "none of them"."""
    rows = [rows_of(asked, given.others, chance) for asked in batch]
    judge.train()
    numbers = judge([pair for each in rows for pair in each])
    choices, nones, begin = [numbers.sum() * 0], [numbers.sum() * 0], 0
    for asked, each in zip(batch, rows, strict=True):
        own = torch.cat([torch.zeros(1), numbers[begin : begin + len(each)]])
        begin += len(each)
        if not asked["answers"]:
            nones.append(torch.logsumexp(own, 0))
            continue
        choices.append(torch.logsumexp(own, 0) - own[1])
        if len(own) > 2:
            nones.append(given.without * torch.logsumexp(torch.cat([own[:1], own[2:]]), 0))
    return torch.stack(choices).sum() / len(batch), torch.stack(nones).sum() / len(batch)


def by_length(found: Sequence[Asked], size: int, epochs: int, chance: random.Random) -> list[list[Asked]]:
    """Batches of questions whose hits are about as long."""
    batches: list[list[Asked]] = []
    for _ in range(epochs):
        row = chance.sample(found, len(found))
        for begin in range(0, len(row), 8 * size):
            some = sorted(
                row[begin : begin + 8 * size], key=lambda asked: sum(len(hit["text"]) for hit in asked["hits"])
            )
            own = [some[at : at + size] for at in range(0, len(some), size)]
            batches += chance.sample(own, len(own))
    return batches


def teach(judge: Judge, batches: Sequence[Any], given: argparse.Namespace) -> None:
    """The rate falls to 0 with the last batch, or when the minutes are over."""
    fresh = {id(each) for each in judge.fresh}
    groups: list[dict[str, Any]] = [
        {"params": [each for each in judge.parameters() if id(each) not in fresh and each.requires_grad]},
        {"params": judge.fresh},
    ]
    optimizer = torch.optim.AdamW(groups, lr=given.rate, weight_decay=0.01)
    state = given.out / "state.pt"
    begin, spent = go_on(judge, optimizer, state) if state.exists() else (0, 0.0)
    if not begin and isinstance(judge, Cross):
        judge.begin([pair for asked in batches[0] for pair in rows_of(asked, given.others, random.Random(given.seed))])
    started, means = time.monotonic() - spent, None
    for step in range(begin, len(batches)):
        done = max(step / len(batches), (time.monotonic() - started) / 60 / given.minutes)
        if done >= 1:
            break
        for group, most in zip(optimizer.param_groups, (given.rate, 10 * given.rate), strict=True):
            group["lr"] = most * min((step + 1) / WARM, 1 - done)
        losses = loss_of(judge, batches[step], given, random.Random(given.seed + step))
        sum(losses).backward()
        torch.nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        now = np.array([loss.item() for loss in losses])
        means = now if means is None else 0.98 * means + 0.02 * now
        if step % 20 == 19:
            spent, work = time.monotonic() - started, time.process_time()
            told = f"choice {means[0]:.3f}, none {means[1]:.3f}, {spent:.0f} s, processor {work:.0f} s"
            print(f"step {step + 1} of {len(batches)}, {told}", flush=True)
        begin = step + 1
        if begin % 50 == 0:
            save(judge, optimizer, begin, time.monotonic() - started, state)
    save(judge, optimizer, begin, time.monotonic() - started, state)


def go_on(judge: Judge, optimizer: Any, state: Path) -> tuple[int, float]:
    """Returns the next step and the seconds that the former ones took."""
    kept = torch.load(state, weights_only=True)
    judge.load_state_dict(kept["judge"])
    optimizer.load_state_dict(kept["optimizer"])
    return kept["step"], kept["spent"]


def save(judge: Judge, optimizer: Any, step: int, spent: float, state: Path) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    kept = {"judge": judge.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "spent": spent}
    torch.save(kept, state.with_suffix(".new"))
    state.with_suffix(".new").replace(state)


def judged(judge: Judge, asked: Asked) -> Asked:
    """The question with the judge's number at each of its hits."""
    judge.eval()
    with torch.no_grad():
        numbers = judge([(asked["query"], hit["text"]) for hit in asked["hits"]]).tolist() if asked["hits"] else []
    return {**asked, "hits": [{**hit, "judged": one} for hit, one in zip(asked["hits"], numbers, strict=True)]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers with the weights to begin with")
    parser.add_argument("--hits", type=Path, nargs="*", help="files that are taught on")
    parser.add_argument("--language", help="of the questions that are taught on; default: each")
    parser.add_argument("--judge", type=Path, nargs="*", default=[], help="files that get the judge's numbers")
    parser.add_argument("--every", type=int, default=1, help="judge only every so many-th question of a file")
    parser.add_argument("--kind", choices=["cross", *KINDS], default="cross")
    parser.add_argument("--layers", type=int, default=3, help="that read both texts")
    parser.add_argument("--others", type=int, default=7, help="memories a question that do not answer it")
    parser.add_argument("--without", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=90, help="at most")
    parser.add_argument("--batch", type=int, default=8, help="questions")
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    torch.manual_seed(given.seed)
    torch.set_num_threads(given.threads)
    judge = Cross(given.base, given.layers) if given.kind == "cross" else KINDS[given.kind](given.base)
    if given.hits:
        found = [asked for asked in used(given.hits, given.language) if judge.texts.read_by_word(asked["query"])]
        batches = by_length(found, given.batch, given.epochs, random.Random(given.seed))
        print(f"{len(found)} questions, {len(batches)} batches", flush=True)
        teach(judge, batches, given)
    elif (state := given.out / "state.pt").exists():
        judge.load_state_dict(torch.load(state, weights_only=True)["judge"])
    for file in given.judge:
        write(file.with_suffix(".judged.jsonl"), (judged(judge, asked) for asked in read(file)[:: given.every]))


if __name__ == "__main__":
    main()
