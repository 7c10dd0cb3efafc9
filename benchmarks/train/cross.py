"""A cross-encoder of the encoder's weights: reads two texts in one input and gives one number, the log-odds of a yes.

`benchmarks.train.pairs` and `benchmarks.train.relevance` teach it. The number comes from the mean of the token vectors
and the vector of the first token, by one linear layer. All tokens are of one type, as the base was taught, so that the
service's graph of the encoder (scripts/embedding_graph.py) can hold it.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

Both: TypeAlias = tuple[str, str]
MOST_TOKENS = 128
WARM = 0.1


def precision() -> Any:
    """A context in which products are made in bfloat16, where the processor has AMX. Elsewhere that gains little, or
    takes several times as long as float32."""
    has_amx = bool(torch.cpu.get_capabilities().get("amx_bf16"))
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=has_amx)


def evenly(bert: Any, layers: int) -> None:
    """Leaves so many layers of a model, taken evenly: 1, 3, 5 of 0 to 5."""
    known = bert.encoder.layer
    step = len(known) / layers
    bert.encoder.layer = torch.nn.ModuleList(known[math.ceil((place + 1) * step) - 1] for place in range(layers))
    bert.config.num_hidden_layers = layers


class Cross(torch.nn.Module):  # type: ignore[misc]
    """`base`: a folder of sentence-transformers, or one that `save` wrote. Fewer `layers` are taken `evenly`."""

    def __init__(self, base: str, layers: int = 6) -> None:
        super().__init__()
        from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.bert = AutoModel.from_pretrained(base, add_pooling_layer=False)
        evenly(self.bert, layers)
        self.dropout = torch.nn.Dropout(0.1)
        self.line = torch.nn.Linear(2 * self.bert.config.hidden_size, 1)
        if (head := Path(base) / "line.pt").exists():
            self.line.load_state_dict(torch.load(head, weights_only=True))

    def forward(self, of: Sequence[Both]) -> Any:
        tokens = self.tokenizer(
            [one for one, _ in of], [other for _, other in of], padding=True, truncation="longest_first",
            max_length=MOST_TOKENS, return_tensors="pt", return_token_type_ids=False,
        )  # fmt: skip
        with precision():
            vectors = self.bert(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"][:, :, None].float()
        mean = (vectors * mask).sum(1) / mask.sum(1)
        return self.line(self.dropout(torch.cat([mean, vectors[:, 0]], 1)))[:, 0]

    def judge(self, of: Sequence[Both], size: int = 32) -> Any:
        """The numbers of many pairs, as numpy: (pairs,)."""
        order = sorted(range(len(of)), key=lambda place: len(of[place][0]) + len(of[place][1]))
        found = np.zeros(len(of))
        self.eval()
        with torch.no_grad():
            for begin in range(0, len(order), size):
                places = order[begin : begin + size]
                found[places] = self([of[place] for place in places]).double().numpy()
        return found

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.bert.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        torch.save(self.line.state_dict(), folder / "line.pt")


def teach(
    model: Cross,
    batches: Sequence[Any],
    loss_of: Callable[[Any], Any],
    rate: float,
    each: Callable[[int, float], None] = lambda step, mean: None,
    minutes: float = math.inf,
) -> None:
    """Goes over the batches once, with a tenth of them to warm up, or as far as it comes in so many minutes: the rate
    falls to 0 by whichever ends first."""
    fresh = {id(weights) for weights in model.line.parameters()}
    groups: list[dict[str, Any]] = [
        {"params": [w for w in model.parameters() if id(w) not in fresh], "lr": rate},
        {"params": list(model.line.parameters()), "lr": 10 * rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    rates, started = [group["lr"] for group in groups], time.monotonic()
    mean = None
    for step, batch in enumerate(batches):
        done = max(step / len(batches), (time.monotonic() - started) / 60 / minutes)
        if done >= 1:
            break
        for group, most in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = most * min((step + 1) / (WARM * len(batches)), 1.0, (1 - done) / (1 - WARM))
        model.train()
        loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        each(step, mean)
