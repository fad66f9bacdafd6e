package httpd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"
)

// Bounds of a Unix socket.
const (
	// mostSocket is the most bytes that the path of a socket may have on Linux. Elsewhere it is a little less.
	mostSocket = 107
	// socketMode lets every process connect that can reach the path: in a box another user than the server's does.
	// Requests need tokens there as on a loopback address, and the folder decides who can reach it.
	socketMode = 0o666
	// askSocket bounds the question whether another server listens on a socket.
	askSocket = 5 * time.Second
)

// CheckSocket returns an error for a path that can't be a socket's in a URL.
func CheckSocket(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/"):
		return fmt.Errorf("the socket %q: want an absolute path", path)
	case strings.ContainsAny(path, ":?#% \t\n"):
		return fmt.Errorf("the socket %q: want a path without : ? # %% and white space", path)
	case len(path) > mostSocket:
		return fmt.Errorf("the socket %q: want a path of at most %d bytes", path, mostSocket)
	}
	return nil
}

// ListenSocket listens on a Unix socket at path, in a folder that is there. It replaces the socket of a server that was
// killed, and nothing else. Closing the listener removes the socket.
func ListenSocket(path string) (net.Listener, error) {
	if err := CheckSocket(path); err != nil {
		return nil, err
	}
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// ErrSocketInUse is returned where another process listens on a socket.
var ErrSocketInUse = errors.New("another process listens on it")

// clearSocket removes a socket on which nobody listens.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("the socket %s: a file is in its place", path)
	}
	conn, err := net.DialTimeout("unix", path, askSocket)
	if err == nil {
		return errors.Join(fmt.Errorf("the socket %s: %w", path, ErrSocketInUse), conn.Close())
	}
	return os.Remove(path)
}
