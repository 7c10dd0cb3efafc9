"""What a service is fixed to, where a test needs another value: `parts.tuning = Tuning(drain_delay_seconds=3)`, then
`create_app(settings, parts)`.

No variable sets these. Constants that no test replaces in a whole service stand in the module that uses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tuning:
    """The values of a service. Created without arguments, those that everybody has."""

    drain_seconds: int = 20
    """How long requests under way may take after SIGTERM. With the delay under the 30 s that orchestrators wait."""
    drain_delay_seconds: float = 0.5
    """How long to be not ready before closing the door, so that load balancers notice."""
    silent_seconds: int = 12
    """A worker whose event loop stands still for so long is killed."""
    idle_seconds: float = 20
    """Longest pause in sending a body, or in reading an answer."""
    cost_burst_seconds: float = 30
    """How many seconds' worth of work a key may use at once."""
    wrong_keys_seconds: float = 60
    """The time in which wrong keys of an address are counted, from the first one on."""
    streams: int = 256
    """Most open streams of changes, for each tenant and process."""
    embedding_seconds: float = 10
    """How long a server of embeddings may take for a batch, retries included; so long a hybrid search waits before it
    goes by words."""
    rerank_hits: int = 50
    """How many of a search's first hits are reranked."""
    findings_per_run: int = 50
    """Most findings of one run of reflection, the surest ones first: more would not be read."""
    insight_calls: int = 5
    """Most groups of related memories that a run asks the language model about."""
    pairs_per_run: int = 200
    """Most pairs of records that the language model judges in one run, the nearest first; 0: none."""
    extract_seconds: float = 30
    """How long a request to extract memories may take. Past it the answer is 202 with an operation."""
    section_seconds: float = 2.0
    """How long one section of a context may take to be read."""
    unsure_below: float = 0.2
    """A context whose best score is lower says that nothing surely answers the query."""
    exact_up_to: int = 5_000
    """Memories of a scope that are searched exactly even where MongoDB has search indexes."""
    busy_timeout_ms: int = 5_000
    """How long to wait for a store that another process locks."""
    job_seconds: Mapping[str, float] = field(default_factory=dict)
    """Periods of scheduled jobs by kind, in place of those in `app/jobs/runner.py`."""


USUAL = Tuning()
