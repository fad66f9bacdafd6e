// Package natsserver runs a real nats-server in this process, for tests: JetStream on disk, each write synced, on a loopback port of its own.
package natsserver

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Start starts a server that keeps its streams in dir. Whoever started it calls Stop.
func Start(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, SyncAlways: true, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		Stop(s)
		return nil, errors.New("the nats-server does not get ready")
	}
	return s, nil
}

// Stop ends a server and waits for it.
func Stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}
