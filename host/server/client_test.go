package server_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// The protocol's own client reads a thread, with a token, as it is and as it grows, by either way of waiting; and it
// writes a stream.
func TestOfficialClient(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveOn(t, open(t), func(*server.Server) {})
			out := node(t, map[string]string{"client.mjs": officialClient}, []string{"client.mjs"}, []string{
				"SERVER_URL=" + url, "WRITE=" + writer(t, "t1"),
				"READ=" + mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRead}}),
				"NOTES=" + mint(t, token.Grant{Stream: "notes/1", Scope: []string{token.ScopeWrite}}),
			})
			want := "read a b\nlong-poll a b c\nsse a b c d\nnotes first second\nrefused 401 403\n"
			if string(out) != want {
				t.Errorf("got %s\nwant %s", out, want)
			}
		})
	}
}

const officialClient = `
import { stream, DurableStream, IdempotentProducer } from "@durable-streams/client"
const { SERVER_URL, WRITE, READ, NOTES } = process.env
const post = async (...ids) => {
  const body = ids.map((id) => ({ id, ts: "2026-01-01T00:00:00.000Z", payload: { type: "chat", text: id } }))
  const res = await fetch(SERVER_URL + "/api/stream/arbe-thread-t1", { method: "POST", body: JSON.stringify(body),
    headers: { authorization: "Bearer " + WRITE, "content-type": "application/json" } })
  if (!res.ok) throw new Error("post: " + res.status)
}
const open = (live) => stream({ url: SERVER_URL + "/v1/stream/arbe-thread-t1", headers: { authorization: "Bearer " + READ }, offset: "-1", live })
const ids = (items) => items.map((e) => e.id + (e.at ? "" : "?")).join(" ")

await post("a", "b")
console.log("read", ids(await (await open(false)).json()))
for (const [live, next] of [["long-poll", "c"], ["sse", "d"]]) {
  const seen = []
  const res = await open(live)
  await new Promise((resolve, reject) => {
    let posted = false
    res.subscribeJson(async (batch) => {
      seen.push(...batch.items)
      if (!posted) { posted = true; post(next).catch(reject) }
      if (seen.at(-1)?.id === next) resolve()
    })
  })
  res.cancel()
  console.log(live, ids(seen))
}
const notes = await DurableStream.create({ url: SERVER_URL + "/v1/stream/notes/1", headers: { authorization: "Bearer " + NOTES }, contentType: "application/json" })
const producer = new IdempotentProducer(notes, "writer-1", { autoClaim: true })
producer.append(JSON.stringify("first"))
producer.append(JSON.stringify("second"))
await producer.flush()
await producer.close()
console.log("notes", (await (await notes.stream({ live: false })).json()).join(" "))
const status = async (headers) => (await fetch(SERVER_URL + "/v1/stream/notes/1", { headers })).status
console.log("refused", await status({}), await status({ authorization: "Bearer " + READ }))
process.exit(0)
`
