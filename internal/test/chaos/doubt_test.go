package chaos_test

import (
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
)

// A box that a host could not use is looked at within 5 s by a server that reconciles: one that lives is trusted again,
// and one that is gone is condemned for all of its threads.
func TestDoubtIsLookedAt(t *testing.T) {
	for name, vanishes := range map[string]bool{"it lives": false, "it is gone": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, stop := newWorld(t, 1)
				defer stop()
				p := w.process("serve", 0)
				in := w.rowsOf(p)
				w.rows.Thread("t1", "")
				turn, err := in.Obtain(p.ctx, rows.BoxOrder{Thread: "t1", Hold: lease.Opening("t1"), Maker: "m"})
				if err != nil {
					t.Fatal(err)
				}
				box, err := (view{w.cloud, p}).Create(p.ctx, sandbox.Options{Labels: map[string]string{
					sandbox.LabelRow: turn.Row.ID, sandbox.LabelInstallation: installation,
				}})
				if err == nil {
					err = in.Ready(p.ctx, turn.Row.ID, "m", box.Ref().ID)
				}
				if err != nil {
					t.Fatal(err)
				}
				w.wg.Go(func() {
					none := func(func(string, uint64) error) error { return nil }
					_ = w.reconciler(p).Loop(p.ctx, 10*time.Hour, none, func(string, reconcile.State) {})
				})
				time.Sleep(time.Hour + time.Second) // the loop's first pass is over
				if vanishes {
					w.cloud.vanish(box.Ref().ID)
				}
				if err := in.Doubt(p.ctx, turn.Row.ID, "not found"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5*time.Second + reconcileAgain)
				synctest.Wait()
				doubted, err := in.Doubted(p.ctx)
				now, _, rerr := in.Row(p.ctx, turn.Row.ID)
				if err != nil || rerr != nil || len(doubted) > 0 || now.Dead != vanishes {
					t.Errorf("doubted %v, %v; %+v, %v", doubted, err, now, rerr)
				}
				p.cancel()
			})
		})
	}
}

// reconcileAgain is the time between the looks at a box that seems gone, twice: the evidence, and the decision.
const reconcileAgain = 5 * time.Second
