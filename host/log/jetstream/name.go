package jetstream

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"strings"

	"arbe.0sk.ar/runner/host/log/engine"
)

// A stream is a subject of one of the shards, <prefix>.<shard>.<token>. The token is the stream's name if that has
// letters, digits, "_" and "-" only, and else coded and the name in base64: no other part of a name has a meaning to
// NATS.
const coded = "~"

func nameToken(name string) string {
	if isToken(name) {
		return name
	}
	return coded + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// tokenName is nameToken's inverse.
func tokenName(token string) (string, error) {
	code, is := strings.CutPrefix(token, coded)
	if !is {
		if !isToken(token) {
			return "", fmt.Errorf("%q is not the token of a stream", token)
		}
		return token, nil
	}
	name, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil || nameToken(string(name)) != token {
		return "", fmt.Errorf("%q is not the token of a stream", token)
	}
	return string(name), nil
}

// isToken reports whether s has letters, digits, "_" and "-" only.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != ""
}

// shardOf returns which of n shards has a stream. It must never change.
func shardOf(name string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	return int(h.Sum64() % uint64(n))
}

// subject is a stream as the cluster has it.
type subject struct {
	*Engine
	shard  *shard
	name   string  // of the subject
	cached *cached // of a stream in use
}

// find returns the subject of a stream.
func (n *Engine) find(stream string) (*subject, error) {
	if stream == "" || len(stream) > engine.MaxName || strings.ContainsRune(stream, 0) {
		return nil, fmt.Errorf("%.80q is not the name of a stream", stream)
	}
	s := n.shards[shardOf(stream, len(n.shards))]
	return &subject{Engine: n, shard: s, name: s.prefix + nameToken(stream)}, nil
}

// use is find for a caller that reads and changes what is cached of the stream. It calls release when done.
func (n *Engine) use(stream string) (*subject, error) {
	x, err := n.find(stream)
	if err == nil {
		x.cached = n.cache.acquire(stream)
	}
	return x, err
}

func (x *subject) release() { x.cache.release(x.cached) }
