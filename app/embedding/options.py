"""What the runtimes of the extras go by, beside the model's name."""

from dataclasses import dataclass, field

from app.settings import EmbeddingSettings


@dataclass(frozen=True, slots=True)
class Server:
    """Where an OpenAI-compatible `/embeddings` is, and what to ask of it."""

    base_url: str = "https://api.openai.com/v1"
    api_key: str = field(default="", repr=False)
    dimensions: int = 0  # 0: what the server gives
    timeout_seconds: float = 10  # of one batch, retries included
    batch_texts: int = 128


@dataclass(frozen=True, slots=True)
class Options:
    text_chars: int = 8192  # of a text, from its beginning
    server: Server = Server()

    @classmethod
    def of(cls, settings: EmbeddingSettings) -> "Options":
        server = Server(
            base_url=settings.base_url,
            api_key=settings.api_key.get_secret_value(),
            dimensions=settings.dimensions,
            timeout_seconds=settings.timeout_seconds,
            batch_texts=settings.batch_texts,
        )
        return cls(text_chars=settings.text_chars, server=server)
