# The local stack with Valkey and the template: `make docker` builds it, `docker compose up` runs it. It is for
# development. Any caller who reaches its port can act as any user.

FROM rust:1.95-trixie AS build
WORKDIR /src
COPY . .
# `measured` builds an optimised stack, which takes five times as long.
ARG PROFILE=local
RUN cargo build --locked --profile "$PROFILE" -p tidemark-local --bin tidemark-local \
    && strip -o /tidemark-local "target/$PROFILE/tidemark-local"

FROM debian:trixie-slim
# Debian keeps only the newest version of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends valkey-server \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --home-dir /data --uid 10001 tidemark \
    && install --directory --owner tidemark --group tidemark /data
COPY --from=build /tidemark-local /usr/local/bin/tidemark-local
COPY template.yaml /etc/tidemark/template.yaml
ENV TIDEMARK_ADDR=0.0.0.0:3000 TIDEMARK_DATA=/data TIDEMARK_TEMPLATE=/etc/tidemark/template.yaml
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 3000
# Without a client of HTTP: the image has bash, and no curl.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/3000 && printf 'GET /v1/health HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q '\"status\":\"ok\"' <&3"]
ENTRYPOINT ["tidemark-local"]
