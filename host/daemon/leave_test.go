package daemon_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// A service beside a server that ends can post to that server what it leaves to others.
func TestServeOutlastsServicesBeside(t *testing.T) {
	var posted error
	url, stop := serve(t, daemon.Config{
		Addr: "127.0.0.1:0", Data: daemon.Data(t.TempDir()), Secrets: [][]byte{secret},
		Parts: func(s daemon.Serving) daemon.Parts {
			return daemon.Parts{Beside: func(ctx context.Context) error {
				<-ctx.Done()
				c := &client.Client{
					Base: thread.BaseURL(s.URL), Thread: "t1", Token: client.StaticToken(writer(t, "t1")), HTTP: s.HTTP,
				}
				_, posted = c.Append(context.WithoutCancel(ctx), []thread.Entry{
					thread.NewEntry("farewell", "", thread.Chat{Type: thread.TypeChat, Text: "released"}),
				})
				return nil
			}}
		},
	})
	if url == "" {
		t.Error("no server")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if posted != nil {
		t.Errorf("not posted: %v", posted)
	}
}

// A server waits for the services beside it, not for ever, and not where its log has failed.
func TestOutlast(t *testing.T) {
	for name, tt := range map[string]struct {
		cause error
		after time.Duration // the services end; 0 for never
		want  time.Duration
	}{
		"services that end":   {nil, time.Second, time.Second},
		"services that stay":  {nil, 0, daemon.LeaveWithin},
		"a log that failed":   {httpd.ErrAtOnce, 0, 0},
		"services that ended": {nil, time.Nanosecond, time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				beside, leave := context.WithCancel(t.Context())
				defer leave()
				began := time.Now()
				cancel(tt.cause)
				if tt.after > 0 {
					time.AfterFunc(tt.after, leave)
				}
				daemon.Outlast(ctx, beside)
				if got := time.Since(began); got != tt.want {
					t.Errorf("it took %v, want %v", got, tt.want)
				}
			})
		})
	}
}
