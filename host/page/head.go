package page

import (
	"cmp"
	"context"
	"net/url"

	"arbe.0sk.ar/runner/thread"
)

// head is the part of a thread's page that stays above the items.
type head struct {
	*row
	Branch  string // that the run's work is pushed to; "" for none
	Request string // address of its pull request on the web; "" for none
}

// head returns the head of a thread, with the thread's name where it has one.
func (r *reader) head(ctx context.Context, v thread.Summary) *head {
	one := &head{row: r.row(ctx, v, now())}
	if !r.shared {
		one.Title = cmp.Or(r.whose(ctx, v.ID).Thread.Name, one.Title)
	}
	f, err := r.Threads.Fold(ctx, v.ID)
	if err != nil {
		return one // it has no entry yet
	}
	run, _ := f.Fold.Latest()
	if run.After != nil && run.After.Push != nil {
		one.Branch = run.After.Push.Branch
	}
	if run.Push != nil {
		one.Branch, one.Request = cmp.Or(run.Push.Branch, one.Branch), webAddress(run.Push.PRURL)
	}
	return one
}

// webAddress returns an address that a writer chose, for a link; "" for one that is not on the web.
func webAddress(address string) string {
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return address
}
