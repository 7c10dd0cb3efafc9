"""Variables that were settings once, by name without the prefix, each with what it is fixed at. One that is still set
is ignored, with a warning at start."""

FIXED = {
    "BUSY_TIMEOUT_MS": "5000",
    "DRAIN_SECONDS": "20",
    "DRAIN_DELAY_SECONDS": "0.5",
    "CONNECTIONS_TOTAL": "4096",
    "CONNECTIONS_HEADER_SECONDS": "10",
    "CONNECTIONS_HEADER_BYTES": "65536",
    "CONNECTIONS_BODY_SECONDS": "120",
    "CONNECTIONS_IDLE_SECONDS": "20",
    "CONNECTIONS_BODY_BYTES": "268435456",
    "JOBS_DECAY_SECONDS": "3600",
    "JOBS_EXPIRY_SECONDS": "600",
    "JOBS_RETENTION_SECONDS": "3600",
    "JOBS_CONSOLIDATION_SECONDS": "86400",
    "JOBS_REFLECTION_SECONDS": "86400",
    "JOBS_PREDICATES_SECONDS": "3600",
    "JOBS_EMBED_SECONDS": "5",
}
