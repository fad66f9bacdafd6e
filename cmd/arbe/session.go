package main

import (
	"errors"
	"io"
	"iter"
	"os"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// writeSession writes the session of a thread's last run as a file of a harness, for the page's Config.
func writeSession(w io.Writer, harness string, entries iter.Seq2[thread.Entry, error]) (err error) {
	d, ok := session.Harnesses().Named(harness)
	if !ok {
		return page.ErrNoSession
	}
	id, err := uuid.NewV7() // of a session that has none yet
	if err != nil {
		return err
	}
	r := &hydrate.Rebuilder{Dialect: d, TempDir: os.TempDir(), DefaultCwd: "/", Amend: true}
	defer func() { err = errors.Join(err, r.Close()) }()
	for e, err := range entries {
		if err != nil {
			return err
		}
		if err := r.Add(hydrate.Parse(e, d)); err != nil {
			return err
		}
	}
	_, err = r.Copy(w, id.String(), time.Now())
	if errors.Is(err, hydrate.ErrNoSession) {
		return page.ErrNoSession
	}
	return err
}
