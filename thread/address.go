package thread

import "strings"

// apiPath is the path of the thread API on its server.
const apiPath = "/api/stream"

// Unix begins the address of a server that listens on a Unix socket: unix:///run/arbe.sock.
const Unix = "unix://"

// BaseURL returns the base of a server's thread API: its address, with /api/stream appended where it does not end in
// that. Behind the path of a Unix socket a colon stands first: unix:///run/arbe.sock:/api/stream.
func BaseURL(address string) string {
	address = strings.TrimSuffix(strings.TrimRight(address, "/"), apiPath)
	if strings.HasPrefix(address, Unix) {
		address = strings.TrimSuffix(address, ":") + ":"
	}
	return address + apiPath
}

// SocketOf returns the path of the Unix socket in a server's address or base; false for a server that has none.
func SocketOf(address string) (path string, is bool) {
	path, is = strings.CutPrefix(address, Unix)
	path, _, _ = strings.Cut(path, ":")
	return path, is && strings.HasPrefix(path, "/")
}
