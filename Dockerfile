#   docker build -t recalld .                     # --build-arg EXTRAS="otel encryption": with those extras
# The first key is made before the first start, since the service takes no address
# other than loopback while there is none:
#   docker run --rm -v recalld:/data recalld keys create --tenant default --name first --verbs read,write,admin
#   docker run -v recalld:/data -p 8000:8000 recalld
# One version. To have one build of it, too: --build-arg BASE=python@sha256:… (docs/operations/operating.md, "In Docker").
ARG BASE=python:3.13.9-slim-bookworm
FROM ${BASE} AS builder
ARG EXTRAS=""
COPY requirements/runtime.txt requirements/encryption.txt requirements/otel.txt /tmp/requirements/
# The image's own pip installs, so that the environment carries none. The embedding model is part of app/.
RUN python -m venv --without-pip /venv \
    && for lock in runtime $EXTRAS; do \
        pip --python /venv/bin/python install --no-cache-dir --require-hashes --no-deps \
            -r "/tmp/requirements/$lock.txt" || exit 1; \
    done

FROM ${BASE}
RUN useradd --system --uid 10001 --no-create-home recalld \
    && install --directory --owner=recalld --group=recalld /data
COPY --from=builder /venv /venv
COPY app /srv/app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1 \
    RECALLD_HOST=0.0.0.0 RECALLD_PORT=8000 RECALLD_DATA_DIR=/data
WORKDIR /srv
USER 10001
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['RECALLD_PORT']}/readyz\", timeout=4)"]
ENTRYPOINT ["python", "-m", "app.cli"]
CMD ["serve"]
