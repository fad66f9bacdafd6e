package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// listed is a box as sandbox list prints it.
type listed struct {
	sandbox.Box
	Ephemeral bool        `json:"ephemeral"`
	Row       *boxRow     `json:"row,omitempty"` // nil without a database
	Runs      []boxRun    `json:"runs"`
	Lease     []rows.Hold `json:"lease"`
	Kept      string      `json:"kept,omitempty"`  // the reason, and until when, if it is kept after its run
	Fault     string      `json:"fault,omitempty"` // machine and row do not agree
}

// boxRow is the row of a box.
type boxRow struct {
	ID              string           `json:"id"`
	Status          string           `json:"status"`
	House           string           `json:"house"`
	HouseName       string           `json:"houseName"`
	Environment     string           `json:"environment"`
	EnvironmentName string           `json:"environmentName"`
	Threads         []rows.BoxThread `json:"threads"`     // those that run first, then the newest
	ThreadCount     int              `json:"threadCount"` // Threads may lack some

	holds []rows.Hold
}

type boxRun struct {
	Thread string `json:"threadId"`
	ID     string `json:"runId"`
	Status string `json:"status"`
}

func (p *program) sandboxList(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("sandbox list takes no arguments")
	}
	cmd := p.command(c)
	h, err := cmd.host()
	if err != nil {
		return err
	}
	if name := c.String("runtime"); name != "" {
		if _, err := h.boxes.named("--runtime", name); err != nil {
			return err
		}
	}
	if c.Bool("reconcile") {
		if err := cmd.settleAll(c.Context, h, p.stderr); err != nil {
			fmt.Fprintf(p.stderr, "arbe: %v\n", err)
		}
	}
	l := boxList{
		host: h, runtime: c.String("runtime"), house: cmd.house,
		unlisted: map[string]bool{}, folds: map[string]*thread.Fold{},
	}
	errs := []error{l.machines(c.Context), l.readRows(c.Context)}
	if cmd.house != "" && errs[1] != nil {
		return errors.Join(errs...)
	}
	boxes := l.join(c.Context)
	if len(boxes) == 0 && h.database == nil && l.house != "" {
		fmt.Fprintf(p.stderr, "no boxes with the label %s=%s; names of houses need --database\n",
			sandbox.LabelHouse, l.house)
	}
	enc, now := json.NewEncoder(p.stdout), time.Now()
	for _, b := range boxes {
		if err := l.describe(c.Context, &b); err != nil {
			fmt.Fprintf(p.stderr, "arbe: %s: %v\n", b.Ref, err) // the box is listed with what is known
		}
		if cmd.json {
			errs = append(errs, enc.Encode(b))
			continue
		}
		fmt.Fprintln(p.stdout, view.Visible(b.line(now))) // names are chosen by members
	}
	return errors.Join(errs...)
}

// boxList joins the machines that providers list with the rows of boxes.
type boxList struct {
	host
	runtime  string // "" for each provider
	house    string // "" for each house; as it was typed, and with a database then its id
	boxes    []sandbox.Box
	unlisted map[string]bool // providers that did not list their boxes
	rows     []rows.UsedBox  // nil without a database
	folds    map[string]*thread.Fold
}

// machines lists the boxes of the providers.
func (l *boxList) machines(ctx context.Context) error {
	var errs []error
	for _, name := range l.host.boxes.kinds.Names() {
		if l.providers[name] == nil || l.runtime != "" && l.runtime != name {
			continue
		}
		boxes, err := l.providers[name].List(ctx, nil)
		l.unlisted[name] = err != nil
		l.boxes = append(l.boxes, boxes...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readRows reads the rows that the machines name, and those of the house.
func (l *boxList) readRows(ctx context.Context) error {
	if l.database == nil {
		return nil
	}
	db, err := l.database(ctx)
	if err != nil {
		return databaseExit(err)
	}
	if l.house != "" {
		house, err := findHouse(ctx, db.Host(), l.house)
		if err != nil {
			return databaseExit(err)
		}
		l.house = house.ID
	}
	named := []string{}
	for _, b := range l.boxes {
		if row := b.Labels[sandbox.LabelRow]; row != "" {
			named = append(named, row)
		}
	}
	used, err := db.Host().UsedSandboxes(ctx, l.house, named)
	if err == nil {
		l.rows = append([]rows.UsedBox{}, used...)
	}
	return databaseExit(err)
}

// join returns the machines with their rows, and then the rows without a machine.
func (l *boxList) join(ctx context.Context) (all []listed) {
	used := map[string]bool{}
	for _, m := range l.boxes {
		b := listed{Box: m}
		b.Ephemeral, _ = strconv.ParseBool(m.Labels[sandbox.LabelEphemeral]) // a box without the label is kept
		if row, fault := l.rowOf(m); row != nil {
			used[row.ID] = true
			b.Row, b.Ephemeral, b.Fault = boxRowOf(*row), row.Ephemeral, fault
		} else {
			b.Fault = fault
		}
		if l.house == "" || m.Labels[sandbox.LabelHouse] == l.house || b.Row != nil && b.Row.House == l.house {
			all = append(all, b)
		}
	}
	for _, row := range l.rows {
		if !used[row.ID] && (l.runtime == "" || l.runtime == row.Provider) && (l.house == "" || l.house == row.House) {
			if b, is := l.withoutMachine(ctx, row); is {
				all = append(all, b)
			}
		}
	}
	return all
}

// rowOf returns the row of a machine, nil where it has none, and what is wrong between the two.
func (l *boxList) rowOf(m sandbox.Box) (row *rows.UsedBox, fault string) {
	label := m.Labels[sandbox.LabelRow]
	i := slices.IndexFunc(l.rows, func(r rows.UsedBox) bool {
		return label != "" && r.ID == label || label == "" && r.Provider == m.Ref.Provider && r.Ref == m.Ref.ID
	})
	if i < 0 {
		if label != "" && l.rows != nil {
			fault = "its row " + label + " does not exist: arbe sandbox rm deletes it"
		}
		return nil, fault
	}
	switch row = &l.rows[i]; {
	case label == "":
		return row, fmt.Sprintf("no thread uses it: it has no label %s=%s", sandbox.LabelRow, row.ID)
	case row.Status == rows.BoxDead:
		return row, "its row is dead: arbe reconcile --all deletes it"
	case row.Ref != "" && row.Ref != m.Ref.ID:
		return row, fmt.Sprintf("no thread uses it: the machine of its row is %s:%s", row.Provider, row.Ref)
	}
	return row, ""
}

func boxRowOf(r rows.UsedBox) *boxRow {
	return &boxRow{
		ID: r.ID, Status: string(r.Status), House: r.House, HouseName: r.HouseName, Environment: r.Environment,
		EnvironmentName: r.EnvironmentName, Threads: append([]rows.BoxThread{}, r.Threads...),
		ThreadCount: r.ThreadCount, holds: r.Holds,
	}
}

// States of a row's machine that its provider does not list.
const (
	machineNone    = "none" // it is not known to have been made
	machineGone    = "gone"
	machineUnknown = "unknown"
)

// withoutMachine returns a box whose row has no listed machine. The provider is asked about the machine: a list may be
// a little old. is is false for a dead row whose machine is gone, too.
func (l *boxList) withoutMachine(ctx context.Context, r rows.UsedBox) (b listed, is bool) {
	b = listed{
		Box: sandbox.Box{
			Ref: sandbox.Ref{Provider: r.Provider, ID: r.Ref}, State: machineUnknown, Created: r.CreatedAt,
		},
		Ephemeral: r.Ephemeral, Row: boxRowOf(r),
	}
	provider, dead := l.providers[r.Provider], r.Status == rows.BoxDead
	switch {
	case r.Ref == "":
		b.State = machineNone
		return b, !dead
	case provider == nil:
		b.Fault = "its machine is not known: this host does not use " + r.Provider
		return b, true
	case l.unlisted[r.Provider]:
		b.Fault = "its machine is not known: " + r.Provider + " did not list its boxes"
		return b, true
	}
	health, why, err := provider.Probe(ctx, r.Ref)
	switch {
	case err != nil:
		b.Fault = "its machine is not known: " + err.Error()
	case health == sandbox.Unknown:
		b.Fault = "its machine is not known: " + why
	case health.Exists():
		b.State = why
	default:
		b.State, b.Fault = machineGone, "its machine is gone: arbe reconcile --all declares its row dead"
	}
	return b, b.State != machineGone || !dead
}

// describe adds the runs of a box, from its threads, and its holders, from its row or its lease.
func (l *boxList) describe(ctx context.Context, b *listed) error {
	b.Runs, b.Lease = []boxRun{}, []rows.Hold{}
	var errs []error
	first := b.Labels[sandbox.LabelThread]
	for _, id := range b.threads() {
		fold, err := l.foldOf(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, r := range fold.Runs() {
			in := r.Box()
			if in == nil || in.Provider != b.Ref.Provider || in.Ref != b.Ref.ID ||
				id != first && r.Status != thread.StatusRunning {
				continue
			}
			b.Runs = append(b.Runs, boxRun{id, r.ID, r.Status})
			if b.Kept = ""; r.Kept != nil {
				b.Kept = r.Kept.Reason + "; until " + r.Kept.Until
			}
		}
	}
	holds, err := l.holds(ctx, b)
	errs = append(errs, err)
	for _, h := range holds {
		if h.TTL > 0 || l.open(ctx, h) {
			b.Lease = append(b.Lease, h)
		}
	}
	return errors.Join(errs...)
}

// threads returns the threads whose runs a list has: the one that the box was made for, and those of its row that run.
func (b *listed) threads() (ids []string) {
	if id := b.Labels[sandbox.LabelThread]; thread.ValidThread(id) {
		ids = append(ids, id)
	}
	if b.Row != nil {
		for _, t := range b.Row.Threads {
			if t.Status == rows.ThreadRunning && !slices.Contains(ids, t.ID) {
				ids = append(ids, t.ID)
			}
		}
	}
	return ids
}

// holds returns the holds of a box that have not expired.
func (l *boxList) holds(ctx context.Context, b *listed) ([]rows.Hold, error) {
	switch {
	case b.Row != nil:
		return b.Row.holds, nil
	case l.rows != nil && b.Labels[sandbox.LabelRow] != "":
		return nil, nil // its row is gone, and the holds with it
	case !thread.ValidThread(b.Labels[sandbox.LabelThread]):
		return nil, nil
	}
	of, err := l.leaseOf(b.Ref, b.Labels)
	if err != nil {
		return nil, err
	}
	state, err := of.Read(ctx)
	return slices.DeleteFunc(state.Holds, func(h rows.Hold) bool { return h.Expired(state.Now) }), err
}

// open reports whether the run or the command of a hold has not ended. One that is not known may be open.
func (l *boxList) open(ctx context.Context, h rows.Hold) bool {
	fold, err := l.foldOf(ctx, h.ThreadID)
	if err != nil {
		return true // describe has reported it, or another thread's read
	}
	_, exec := fold.OpenExec(h.RunID)
	run, _ := fold.Run(h.RunID)
	return exec || run.Status == thread.StatusRunning
}

// foldOf is fold, once for each thread.
func (l *boxList) foldOf(ctx context.Context, id string) (*thread.Fold, error) {
	if f := l.folds[id]; f != nil {
		return f, nil
	}
	f, err := l.fold(ctx, id)
	if err == nil {
		l.folds[id] = f
	}
	return f, err
}

// line returns the box as one line.
func (b listed) line(now time.Time) string {
	kind := "kept"
	switch {
	case b.Ephemeral:
		kind = "ephemeral"
	case b.Row != nil:
		kind = "shared"
	}
	fields := []string{
		b.Ref.Provider + ":" + cmp.Or(b.Ref.ID, "-"), b.State, kind, b.threadField(),
		cmdline.Age(b.Created, now) + " old",
	}
	add := func(format string, args ...any) { fields = append(fields, fmt.Sprintf(format, args...)) }
	house, environment := b.Labels[sandbox.LabelHouse], b.Labels[sandbox.LabelEnvironment]
	if b.Row != nil {
		house, environment = b.Row.HouseName, b.Row.EnvironmentName
	}
	if house != "" {
		add("house %s", house)
	}
	if environment != "" {
		add("environment %s", environment)
	}
	if b.Row != nil {
		add("row %s %s", b.Row.ID, b.Row.Status)
	}
	for _, r := range b.Runs {
		if add("run %s %s", r.ID, r.Status); len(b.threads()) > 1 || b.Row != nil {
			fields[len(fields)-1] += " on " + r.Thread
		}
	}
	for _, h := range b.Lease {
		switch run := strings.HasPrefix(h.Holder, "run:"); {
		case !run:
			add("held by %s", h.Holder)
		case !slices.ContainsFunc(b.Runs, func(r boxRun) bool { return r.Thread == h.ThreadID && r.ID == h.RunID }):
			add("held by run %s on %s", h.RunID, h.ThreadID)
		}
	}
	if b.Kept != "" {
		add("kept: %s", b.Kept)
	}
	if b.Fault != "" {
		add("! %s", b.Fault)
	}
	return strings.Join(fields, "  ")
}

// mostNamed bounds the threads that a line names.
const mostNamed = 3

// threadField returns the threads on a box: those of its row, else that of its label.
func (b listed) threadField() string {
	if b.Row == nil {
		return "thread " + cmp.Or(b.Labels[sandbox.LabelThread], "-")
	}
	var ids []string
	for _, t := range b.Row.Threads[:min(mostNamed, len(b.Row.Threads))] {
		ids = append(ids, t.ID)
	}
	text := cmp.Or(strings.Join(ids, ", "), "-")
	if more := b.Row.ThreadCount - len(ids); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "thread " + text
}
