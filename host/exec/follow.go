package exec

import (
	"cmp"
	"context"
	"encoding/json"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Follow passes the output of a command to f, in order, from an offset of the thread on, and returns the command's end.
// ok is false if ctx ended before.
func Follow(
	ctx context.Context, cl *client.Client, execID, offset string, f func(thread.ExecOutput) error,
) (end thread.ExecFinished, ok bool, err error) {
	offset = cmp.Or(offset, "0")
	err = cl.Only("signal.exec.").Follow(ctx, offset, func(e thread.Entry) error {
		id, _, is := thread.ParseExecID(e.ID)
		if !is || id != execID || ok {
			return nil
		}
		sig, err := thread.Scan(e.Payload)
		if err != nil {
			return nil // the current server refuses it
		}
		switch sig.Type {
		case thread.TypeExecOutput:
			var p thread.ExecOutput
			if json.Unmarshal(e.Payload, &p) == nil {
				return f(p)
			}
		case thread.TypeExecFinished:
			if json.Unmarshal(e.Payload, &end) == nil {
				ok = true
				return client.ErrStop
			}
		}
		return nil
	}, nil)
	return end, ok, err
}

// ExitStatus returns the exit status of a program that ran a command which ended so: the command's own, 128+n for
// signal n, and 1 where its end is not known.
func ExitStatus(end thread.ExecFinished) int {
	if end.ExitCode != nil {
		return *end.ExitCode
	}
	return launch.SignalStatus(end.ExitSignal)
}
