package control_test

import (
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/test/fakerows"
)

// The rows behave as their double in memory does.
func TestRowsConform(t *testing.T) {
	fakerows.Conform(t, func(t *testing.T, test func(*testing.T, fakerows.Host)) {
		t.Parallel()
		db, url := openAlone(t, control.Config{})
		h, c := newHouse(t, db), connect(t, url)
		test(t, fakerows.Host{
			Rows: boxes(db), Provider: "daytona",
			Thread: func(t *testing.T, box string) string {
				t.Helper()
				n := rows.NewThread{House: h.id, Environment: h.env, Agent: h.bot, Sandbox: box}
				return must(db.Host().CreateThread(t.Context(), n))(t).ID
			},
			Pass: func(t *testing.T, d time.Duration) {
				t.Helper()
				for _, sql := range []string{
					`update sandboxes set pending_until = pending_until - $1::interval`,
					`update sandbox_holds set at = at - $1::interval, expires_at = expires_at - $1::interval`,
					`update threads set claimed_at = claimed_at - $1::interval where claimed_at is not null`,
				} {
					_ = must(c.Exec(t.Context(), sql, d))(t)
				}
			},
		})
	})
}
