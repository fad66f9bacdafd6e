// A client of the thread API without dependencies. Node from 22.18 on, Deno and Bun run it as it is:
//   SERVER=http://127.0.0.1:8787 THREAD=demo TOKEN=$(arbe token mint --thread demo) node client.ts "hello"
export type Payload = { type: string; runId?: string; status?: string; text?: string; [member: string]: unknown }
export type Entry = { id: string; ts: string; authorId?: string; payload: Payload; at?: string }
export type Piece = { entries: Entry[]; offset: string; upToDate: boolean } // offset is where the next read begins
type Bad = { index: number; id: string; reason: string }
type Answer = { text: string; headers: Headers }

/** Refused is an error of a thread server. Of a post, entries are those that are wrong. */
export class Refused extends Error {
  status: number
  code: string
  entries: Bad[]
  passes: boolean // a repeat may succeed
  after: number // in so many ms
  constructor(res: Response, error: { code: string; message: string; entries?: Bad[] }) {
    super(`${res.status} ${error.code}: ${error.message}`)
    this.status = res.status
    this.code = error.code
    this.entries = error.entries ?? []
    this.after = 1000 * Number(res.headers.get("Retry-After"))
    this.passes = this.after > 0 || [500, 502, 503, 504].includes(res.status)
  }
}

export class Thread {
  url: string
  token: string
  renewToken: string // "" for none
  patience = 600_000 // ms for which a request is repeated
  pause = 500 // ms before the first repeat
  constructor(server: string, thread: string, token: string, renewToken = "") {
    this.url = `${server}/api/stream/arbe-thread-${thread}`
    this.token = token
    this.renewToken = renewToken
  }

  /** append posts entries, all or none, synced to disk. An id that is there with the same payload stays as it is. */
  async append(...entries: Entry[]): Promise<{ nextOffset: string; appended: number; duplicates: number }> {
    return JSON.parse((await this.send("POST", "", JSON.stringify(entries))).text)
  }

  /** read yields the entries from an offset to the tail, in pieces. types are prefixes of payload types. */
  async *read(offset = "0", types = ""): AsyncGenerator<Piece> {
    for (let more = true; more; ) {
      const piece = await this.piece({ offset, types })
      yield piece
      offset = piece.offset
      more = !piece.upToDate
    }
  }

  /** follow yields the entries from an offset on, and those that come, until the signal aborts. */
  async *follow(offset = "0", types = "", signal?: AbortSignal): AsyncGenerator<Piece> {
    while (!signal?.aborted) {
      const piece = await this.piece({ offset, types, live: "long-poll" }, signal)
      if (piece.entries.length > 0) yield piece
      offset = piece.offset
    }
  }

  async piece({ types, ...query }: Record<string, string>, signal?: AbortSignal): Promise<Piece> {
    const search = new URLSearchParams({ limit: "1000", ...query, ...(types ? { types } : {}) })
    const { text, headers } = await this.send("GET", `?${search}`, undefined, signal)
    const lines: string[] = text.split("\n").filter(Boolean)
    const entries: Entry[] = lines.map((line) => JSON.parse(line))
    return { entries, offset: headers.get("Stream-Next-Offset")!, upToDate: headers.has("Stream-Up-To-Date") }
  }

  /** send repeats a request until a thread server answers: it may have been applied before, and that does no harm. */
  async send(method: string, path: string, body?: string, signal?: AbortSignal): Promise<Answer> {
    const end = Date.now() + this.patience
    for (let wait = this.pause; ; wait = Math.min(2 * wait, 10_000)) {
      let after = wait
      try {
        return await this.once(method, path, body, signal)
      } catch (e) {
        if (signal?.aborted || Date.now() > end || (e instanceof Refused && !e.passes)) throw e
        if (e instanceof Refused) after = Math.max(wait, e.after)
      }
      await new Promise((done) => setTimeout(done, after))
    }
  }

  async once(
    method: string, path: string, body?: string, signal?: AbortSignal, token = this.token, renewed = false,
  ): Promise<Answer> {
    const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" }
    const signals = [AbortSignal.timeout(60_000), signal].filter((s) => s !== undefined) // longer than a long-poll
    const options = { method, body, headers, redirect: "manual", signal: AbortSignal.any(signals) } as const
    const res = await fetch(this.url + path, options)
    const text = await res.text() // an answer that breaks off is an error
    const json = /^application\/(json|x-ndjson)/.test(res.headers.get("Content-Type") ?? "")
    if (res.status === 204 || (res.ok && json)) return { text, headers: res.headers }
    if (!json) throw new Error(`${res.status}: not of a thread server`) // a page of a proxy, a login of a network
    if (res.status !== 401 || !this.renewToken || renewed) throw new Refused(res, JSON.parse(text).error)
    const fresh = await this.once("POST", "/token", undefined, signal, this.renewToken, true)
    this.token = JSON.parse(fresh.text).jwt // good for 2 h
    return this.once(method, path, body, signal, this.token, true)
  }
}

/** Status folds a thread's entries, in their order, to its status: that of the run whose first signal is the latest. */
export class Status {
  runs = new Map<string, { status: string; provisional: boolean }>() // in the order of their first signals
  add({ id, payload: { type, runId, status } }: Entry): void {
    if (!runId || !type.startsWith("signal.")) return
    const place = id.startsWith(runId + ".") ? id.slice(runId.length + 1).split(".")[0] : "" // "end" of r1.end.0
    const [, area, what] = type.split(".")
    const sign =
      /^(heartbeat|status_changed|pi_failed|pi_session_orphaned)$/.test(what) ||
      (what === "sandbox" && place === "sandbox") ||
      (what === "session_started" && place === "started") ||
      (area === "setup" && place === "setup")
    if (!sign) return // of a run that has begun, or of none
    const run = this.runs.get(runId) ?? { status: "running", provisional: false }
    this.runs.set(runId, run)
    const end = what.startsWith("pi_") ? "failed" : what === "status_changed" ? status! : "running"
    const replaces = run.provisional && place === "end" // a host's end is provisional, the runner's replaces it
    if (end === "running" || (run.status !== "running" && !replaces)) return
    Object.assign(run, { status: end, provisional: place === "orphan" })
  }
  get thread(): string {
    return [...this.runs.values()].at(-1)?.status ?? "idle"
  }
}

if (process.argv[1] === import.meta.filename) {
  const { SERVER, THREAD, TOKEN } = process.env
  const thread = new Thread(SERVER!, THREAD!, TOKEN!)
  const text = process.argv[2]
  if (text) {
    await thread.append({ id: crypto.randomUUID(), ts: new Date().toISOString(), payload: { type: "chat", text } })
  }
  const status = new Status()
  for await (const { entries } of thread.read()) {
    for (const e of entries) {
      console.log(e.id, e.payload.type)
      status.add(e)
    }
  }
  console.log("status:", status.thread)
}
