package main

import (
	"cmp"
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// values returns the values of the placeholders in flags and arguments, for completion.
func values(p *program) map[string]cmdline.Values {
	return map[string]cmdline.Values{
		"ID":          p.listThreads,
		"HARNESS":     cmdline.Words(catalog.Names()...),
		"PROVIDER":    cmdline.Words(p.kinds.Names()...),
		"PROVIDER:ID": p.listBoxes,
		"HOUSE":       completeHouses,
		"ENVIRONMENT": completeEnvironments,
		"ENGINE":      cmdline.Words("pebble", "nats"),
		"MODE":        cmdline.Words(rows.ModeMention, rows.ModeAmbient, rows.ModeAlways, rows.ModeOff),
		"SWITCH":      cmdline.Words("on", "off"),
		"SCOPE":       cmdline.Words(slices.Concat(names(scopes), names(serverScopes))...),
		"VARIABLE":    listVariables,
		"SOURCE:PATH": nil, // names of files
	}
}

func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// completionTimeout bounds the wait for a thread server while a person completes a word.
const completionTimeout = 500 * time.Millisecond

// listedThreads is how many threads completion offers, the newest.
const listedThreads = 50

// listThreads returns the newest threads of the server; none if it is not there.
func (p *program) listThreads(flag func(string) string) (all []cmdline.Candidate) {
	c := command{program: p, folder: cmp.Or(flag("data"), os.Getenv("ARBE_DATA"))}
	cl, err := c.clientOf(token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		// A token in the environment is for one thread.
		subject, _ := token.Peek(os.Getenv("ARBE_STREAM_TOKEN"))
		if id, is := thread.OfStream(subject); is {
			all = append(all, cmdline.Candidate{Word: id})
		}
		return all
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	cl.Log = nil
	page, _ := client.NewList(cl).Page(ctx, client.Filter{}, listedThreads, "") // an error is an empty page
	for _, v := range page.Threads {
		text := v.Status
		if at, err := time.Parse(time.RFC3339, v.StartedAt); err == nil {
			text += at.Local().Format(" Jan _2 15:04")
		}
		if v.Title != "" {
			text += " " + v.Title
		}
		all = append(all, cmdline.Candidate{Word: v.ID, Text: text})
	}
	return all
}

// listBoxes returns the boxes on this machine. A list of others would take long.
func (p *program) listBoxes(flag func(string) string) (all []cmdline.Candidate) {
	d, err := dataFolder(cmp.Or(flag("data"), os.Getenv("ARBE_DATA")))
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	on := boxesOf(p.kinds, d)
	for _, kind := range p.kinds {
		provider, err := on.open(kind)
		if err != nil || !provider.Traits().SameMachine {
			continue
		}
		boxes, _ := provider.List(ctx, nil) // after an error there are none
		for _, b := range boxes {
			all = append(all, cmdline.Candidate{Word: b.Ref.String(), Text: "thread " + b.Labels[sandbox.LabelThread]})
		}
	}
	return all
}

// plainName matches names that a shell takes without quotes.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// named returns what completion offers of a row: its name, or its id where the name needs quotes.
func named(id, name string) cmdline.Candidate {
	if plainName.MatchString(name) {
		return cmdline.Candidate{Word: name, Text: id}
	}
	return cmdline.Candidate{Word: id, Text: name}
}

// withRows calls list with the rows of the database that a command line names; it does nothing without one.
func withRows(flag func(string) string, list func(context.Context, control.Scope)) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	db, err := openDatabase(ctx, cmp.Or(flag("database"), os.Getenv("ARBE_DATABASE")))
	if err != nil {
		return
	}
	defer db.Close()
	list(ctx, db.Host())
}

// completeHouses returns the houses of the database; none if it is not there.
func completeHouses(flag func(string) string) (all []cmdline.Candidate) {
	withRows(flag, func(ctx context.Context, s control.Scope) {
		houses, _ := s.Houses(ctx) // after an error there are none
		for _, h := range houses {
			all = append(all, named(h.ID, h.Name))
		}
	})
	return all
}

// completeEnvironments returns the environments in use of the house that a command line names.
func completeEnvironments(flag func(string) string) (all []cmdline.Candidate) {
	withRows(flag, func(ctx context.Context, s control.Scope) {
		h, err := findHouse(ctx, s, cmp.Or(flag("house"), os.Getenv("ARBE_HOUSE")))
		if err != nil {
			return
		}
		environments, _ := s.Environments(ctx, h.ID) // after an error there are none
		for _, e := range environments {
			if e.ArchivedAt == nil {
				all = append(all, named(e.ID, e.Name))
			}
		}
	})
	return all
}

// listVariables returns the names of the variables of this environment.
func listVariables(func(string) string) (all []cmdline.Candidate) {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		all = append(all, cmdline.Candidate{Word: name})
	}
	slices.SortFunc(all, func(a, b cmdline.Candidate) int { return strings.Compare(a.Word, b.Word) })
	return all
}
