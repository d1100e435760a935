# A static binary on an empty image, for nobody in particular (65532).
#
#   docker build --build-arg VERSION="$(git describe --tags --always)" -t weir .
#   docker run -p 8081:8081 -p 8080:8080 -v "$PWD/rules:/rules:ro" weir \
#     serve --grpc-addr 0.0.0.0:8081 --http-addr 0.0.0.0:8080 --rules /rules
#
# Probes. The image has no shell and no curl, so there is no HEALTHCHECK; ask from
# outside, as Kubernetes does:
#   livenessProbe:  {httpGet: {path: /healthz, port: 8080}}
#   readinessProbe: {httpGet: {path: /readyz, port: 8080}}   or
#   readinessProbe: {grpc: {port: 8081, service: ratelimit}}
FROM golang:1.26 AS build
WORKDIR /src
# Before the sources: a change of them alone downloads nothing again.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN make build VERSION="${VERSION}"
# /bin/ratelimit is how Envoy Gateway runs envoyproxy/ratelimit: by that name Weir
# is `weir serve --compat envoyproxy`. A folder, for COPY follows a link that it is
# given and keeps one that is in what it is given.
RUN mkdir -p bin/image/bin && ln -sf /weir bin/image/bin/ratelimit

FROM scratch
# For sources and stores that are reached by TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/weir /weir
COPY --from=build /src/bin/image/ /
# By number, for Kubernetes' runAsNonRoot cannot tell from a name.
USER 65532:65532
EXPOSE 8081 8080
ENTRYPOINT ["/weir"]
CMD ["serve", "--grpc-addr", "0.0.0.0:8081", "--http-addr", "0.0.0.0:8080"]
