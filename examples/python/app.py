"""An HTTP server that lets Weir decide which requests it serves."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote_to_bytes, urlsplit

import grpc
from weir.v1 import weir_pb2, weir_pb2_grpc

channel = grpc.insecure_channel(
    os.environ.get("WEIR_ADDR", "127.0.0.1:8081"),
    options=[("grpc.max_reconnect_backoff_ms", 2000)],
)
weir = weir_pb2_grpc.WeirServiceStub(channel)


def entry(key: str, value: bytes) -> weir_pb2.Entry:
    """Clients may send any bytes: what is not UTF-8 is limited too."""
    try:
        return weir_pb2.Entry(key=key, value=value.decode())
    except UnicodeDecodeError:
        return weir_pb2.Entry(key=key, raw_value=value)


def check(path: bytes, address: str) -> weir_pb2.CheckResponse:
    endpoint, client = entry("endpoint", path), entry("remote_address", address.encode())
    descriptors = [weir_pb2.Descriptor(entries=e) for e in ([endpoint], [endpoint, client])]
    try:
        return weir.Check(weir_pb2.CheckRequest(domain="default", descriptors=descriptors), timeout=0.02)
    except grpc.RpcError as err:
        # What makes no sense to Weir is refused; without Weir, requests pass.
        return weir_pb2.CheckResponse(allowed=err.code() != grpc.StatusCode.INVALID_ARGUMENT)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        answer = check(unquote_to_bytes(urlsplit(self.path).path), self.client_address[0])
        passes = answer.allowed and not answer.queue  # a queued one has its turn later
        body = b"hello\n" if passes else answer.body
        self.send_response(200 if passes else 429)
        for header in answer.headers:
            self.send_header(header.name, header.value.decode("latin-1"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    host, port = os.environ.get("LISTEN", "127.0.0.1:8000").rsplit(":", 1)
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
