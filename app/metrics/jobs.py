"""Background work, by kind."""

from prometheus_client import Counter, Gauge, Histogram

JOB_RUNS = Counter("recalld_job_runs", "Jobs run, by kind and outcome", ["kind", "outcome"])
JOB_SECONDS = Histogram("recalld_job_seconds", "Time of a job", ["kind"], buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120))
JOBS_QUEUED = Gauge("recalld_jobs_queued", "Jobs that wait for their time or a worker, as last counted")
