// A dumb transport in front of a thread server, for boxes that can't reach it themselves.
//
// Method, what follows the base, query, body and Authorization go through as they are, both ways as
// they come. It holds no secret, verifies nothing, follows no redirect, and logs method, path, status
// and duration. `arbe proxy` (host/proxy/proxy.go) is the same in Go, and one suite of tests,
// host/server/contract_test.go, holds for both.

const upstream = parseUpstream(Deno.env.get("ARBE_WORKER_URL") ?? "");

/** More than the server takes, so that it is the server who says so. */
const maxBody = 65 << 20;

/** How long the upstream may take to begin its answer; the platform would give up after 150 s. */
const patience = 120_000;

/** What concerns one connection only. */
const hopByHop = [
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];

/** What a request may carry. The platform adds much of its own, which is nobody else's business. */
const passed = [
  "accept",
  "authorization",
  "cache-control",
  "content-encoding",
  "content-type",
  "idempotency-key",
  "if-match",
  "if-none-match",
  "last-event-id",
  "user-agent",
];

function parseUpstream(address: string): string {
  let base = address.replace(/\/+$/, "");
  if (!base.endsWith("/api/stream")) base += "/api/stream";
  if (!/^https?:\/\/[^/?#@\\]+(\/[^?#\\]*)$/.test(base)) {
    throw new Error("ARBE_WORKER_URL: want the thread server's address");
  }
  return base;
}

/** Path below the function, and query, as they were sent. Parsing would rewrite them. */
function target(url: string): { path: string; query: string } {
  const at = url.indexOf("/", url.indexOf("://") + 3);
  const sent = at < 0 ? "/" : url.slice(at);
  const mark = sent.indexOf("?");
  const path = mark < 0 ? sent : sent.slice(0, mark);
  return {
    path: path
      .replace(/^(\/functions\/v1)?\/stream-proxy(?=\/|$)/, "")
      .replace(/^\/api\/stream(?=\/|$)/, ""),
    query: mark < 0 ? "" : sent.slice(mark),
  };
}

/** Whether a path has a segment that is . or .., in whatever writing: it would lead out of the base. */
function dotted(path: string): boolean {
  return /(^|[/\\]|%2f|%5c)(\.|%2e){1,2}([/\\]|%2f|%5c|$)/i.test(path);
}

/** An error of the proxy's own, in the shape of the server's. */
function say(status: number, code: string, message: string): Response {
  return Response.json({ error: { code, message } }, { status });
}

function requestHeaders(req: Request): Headers {
  const headers = new Headers();
  for (const [name, value] of req.headers) {
    if (passed.includes(name) || name.startsWith("stream-")) headers.append(name, value);
  }
  // Else the runtime asks for compressed answers and unpacks them.
  headers.set("accept-encoding", "identity");
  return headers;
}

function answerHeaders(answer: Response): Headers {
  const headers = new Headers(answer.headers);
  const named = (answer.headers.get("connection") ?? "").split(",").map((s) => s.trim());
  for (const name of [...hopByHop, ...named]) {
    if (name !== "") headers.delete(name);
  }
  return headers;
}

async function forward(req: Request, path: string, query: string): Promise<Response> {
  if (dotted(path)) return say(400, "path", "the path has . or .. in it");
  if (req.method === "TRACE") return say(405, "method", "the method is not passed on");
  const length = req.headers.get("content-length");
  if (Number(length ?? 0) > maxBody) return say(413, "too_large", "the body is too large");

  let body = req.method === "GET" || req.method === "HEAD" ? null : req.body;
  let large = false;
  if (body !== null && length === null) {
    let seen = 0;
    body = body.pipeThrough(
      new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
        transform(chunk, out) {
          seen += chunk.byteLength;
          large = seen > maxBody;
          if (large) out.error(new Error("too large"));
          else out.enqueue(chunk);
        },
      }),
    );
  }

  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), patience);
  try {
    const beside = ["threads", "environments", "secrets"].some((name) =>
      path === `/api/${name}` || path.startsWith(`/api/${name}/`)
    );
    const base = beside ? upstream.slice(0, -"/api/stream".length) : upstream;
    const answer = await fetch(base + path + query, {
      method: req.method,
      headers: requestHeaders(req),
      body,
      redirect: "manual",
      signal: AbortSignal.any([req.signal, late.signal]),
    });
    return new Response(answer.body, {
      status: answer.status,
      statusText: answer.statusText,
      headers: answerHeaders(answer),
    });
  } catch {
    if (large) return say(413, "too_large", "the body is too large");
    if (late.signal.aborted) {
      return say(504, "upstream_slow", "the thread server does not answer in time");
    }
    if (req.signal.aborted) return new Response(null, { status: 499 }); // nobody reads it
    return say(502, "upstream_unreachable", "the thread server can't be reached");
  } finally {
    clearTimeout(timer);
  }
}

Deno.serve(async (req) => {
  const began = performance.now();
  const { path, query } = target(req.url);
  const answer = path === "/healthz" && req.method === "GET"
    ? new Response("ok\n")
    : await forward(req, path, query);
  const ms = Math.round(performance.now() - began);
  console.log(`${req.method} ${path.slice(0, 200)} ${answer.status} ${ms} ms`);
  return answer;
});
