// An HTTP server that lets Weir decide which requests it serves.
import { isUtf8 } from "node:buffer";
import { createServer } from "node:http";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

type Header = { name: string; value: Buffer };
type Answer = { allowed: boolean; queue: string; headers: Header[]; body: Buffer };

const { weir } = grpc.loadPackageDefinition(
  loadSync("weir/v1/weir.proto", { keepCase: true, defaults: true, includeDirs: [process.env.PROTOS ?? "../../api"] }),
) as any;
const client = new weir.v1.WeirService(process.env.WEIR_ADDR ?? "127.0.0.1:8081", grpc.credentials.createInsecure(), {
  "grpc.max_reconnect_backoff_ms": 2000,
});

// Clients may send any bytes: what is not UTF-8 is limited too.
function entry(key: string, value: Buffer) {
  return isUtf8(value) ? { key, value: value.toString() } : { key, raw_value: value };
}

function check(path: Buffer, address: string): Promise<Answer> {
  const endpoint = entry("endpoint", path);
  const descriptors = [{ entries: [endpoint] }, { entries: [endpoint, entry("remote_address", Buffer.from(address))] }];
  return new Promise((resolve) =>
    client.Check({ domain: "default", descriptors }, { deadline: Date.now() + 20 }, (err: grpc.ServiceError | null, answer: Answer) =>
      // What makes no sense to Weir is refused; without Weir, requests pass.
      resolve(err ? { allowed: err.code !== grpc.status.INVALID_ARGUMENT, queue: "", headers: [], body: Buffer.alloc(0) } : answer),
    ),
  );
}

const server = createServer(async (request, response) => {
  const [path] = (request.url ?? "/").split("?", 1);
  const bytes = Buffer.from(path.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(parseInt(hex, 16))), "latin1");
  const answer = await check(bytes, request.socket.remoteAddress ?? "");
  for (const { name, value } of answer.headers) response.appendHeader(name, value.toString("latin1"));
  const passes = answer.allowed && !answer.queue; // a queued one has its turn later
  response.writeHead(passes ? 200 : 429);
  response.end(passes ? "hello\n" : answer.body);
});

const [host, port] = (process.env.LISTEN ?? "127.0.0.1:8000").split(":");
server.listen(Number(port), host);
