// Package natsserver runs a real nats-server in the test's process: JetStream on disk, each write synced, on a loopback
// port that the kernel picks.
package natsserver

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Options are those of Start: a server of its own that keeps its streams in dir.
func Options(dir string) *server.Options {
	return &server.Options{
		ServerName: "one", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir,
		SyncAlways: true,
		NoLog:      true, NoSigs: true,
	}
}

// Start starts a server that keeps its streams in dir. The caller stops it with Stop.
func Start(dir string) (*server.Server, error) { return Run(Options(dir)) }

// Run starts a server with these options. The caller stops it with Stop.
func Run(opts *server.Options) (*server.Server, error) {
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(5 * time.Minute) { // longer than on any busy machine
		Stop(s)
		return nil, errors.New("nats-server does not begin")
	}
	return s, nil
}

// Stop shuts a server down and waits until it has ended.
func Stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}
