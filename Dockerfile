# The service: docker build -t tollgate .   docker run -p 8000:8000 --env-file .env tollgate
#
# Nothing is fetched but the two base images and the crates of Cargo.lock.

# What the program runs in. First, so that `--target runtime` needs no compiler.
FROM debian:bookworm-slim AS runtime
LABEL org.opencontainers.image.title="tollgate" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
ENV TOLLGATE_LISTEN=0.0.0.0:8000
EXPOSE 8000
USER 65532:65532
WORKDIR /
# No shell is needed for either.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["/usr/local/bin/tollgate", "health"]
ENTRYPOINT ["/usr/local/bin/tollgate"]
CMD ["serve"]

FROM rust:1.95-bookworm AS build
# release, or dev for a quick try.
ARG PROFILE=release
ARG FEATURES=redis-tls,dynamodb,memcached,otlp
WORKDIR /src
COPY . .
# Nothing but the program is kept: the rest is gigabytes that no later build reads.
RUN CARGO_INCREMENTAL=0 cargo build --locked --profile "$PROFILE" -p tollgate-server --features "$FEATURES" \
    && cp "target/$(test "$PROFILE" = dev && echo debug || echo "$PROFILE")/tollgate" /tollgate \
    && rm -rf target

FROM runtime
# For stores that are reached by TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /tollgate /usr/local/bin/tollgate
