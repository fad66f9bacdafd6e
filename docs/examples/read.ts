// Prints a thread as it grows, until its latest run has ended. Node 24 runs it as it is:
//   npm install @durable-streams/client@0.2.7
//   SERVER=http://127.0.0.1:8787 THREAD=demo TOKEN=$(arbe token mint --thread demo) node read.ts
import { stream } from "@durable-streams/client"

type Payload = { type: string; runId?: string; status?: string; text?: string; message?: { content: unknown } }
type Entry = { id: string; ts: string; at: string; authorId?: string; payload: Payload }

const { SERVER, THREAD, TOKEN } = process.env
const res = await stream<Entry>({
  url: `${SERVER}/v1/stream/arbe-thread-${THREAD}`,
  headers: { authorization: `Bearer ${TOKEN}` },
  offset: "-1", // the start; later, the offset of the last batch
  live: "sse",
})
let latest = "" // the run whose first signal is the latest
const ended = new Map<string, string>() // the status of each run that has ended

await new Promise<void>((done) => {
  res.subscribeJson((batch) => {
    for (const { id, payload: p } of batch.items) {
      if (p.type === "chat") console.log("you:", p.text)
      if (p.type.endsWith(".assistant")) console.log("agent:", JSON.stringify(p.message?.content))
      if (p.type !== "signal.thread.status_changed" || !p.runId) continue
      if (p.status === "running" && !ended.has(p.runId)) latest = p.runId
      else if (p.status && (!ended.has(p.runId) || id.startsWith(`${p.runId}.end.`))) ended.set(p.runId, p.status)
    }
    if (batch.upToDate && ended.has(latest)) done()
  })
})
console.log("status:", ended.get(latest))
res.cancel()
