package skew_test

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// record has what happened to requests, and how far loops have come.
type record struct {
	mu      sync.Mutex
	phase   string
	refused map[refusal]int
	steps   map[string]int // of each loop
	began   time.Time      // of the phase
	took    string         // by the phases so far
}

// refusal is an answer to a request that is none of success.
type refusal struct{ phase, server, what string }

func newRecord() *record {
	return &record{phase: "before", refused: map[refusal]int{}, steps: map[string]int{}, began: time.Now()}
}

// enter begins a phase.
func (r *record) enter(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took += fmt.Sprintf("%s %.1f s, ", r.phase, time.Since(r.began).Seconds())
	r.phase, r.began = phase, time.Now()
}

// refuse counts an answer, in the phase in which the request began or in the one in which it was answered.
func (r *record) refuse(began, server, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[refusal{began, server, what}]++
}

// now returns the phase.
func (r *record) now() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase
}

// step notes that a loop has come a step further.
func (r *record) step(loop string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps[loop]++
}

// reached reports whether loops have come so many steps further than they were.
func (r *record) reached(since map[string]int, more int, loops ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(loops, func(l string) bool { return r.steps[l] < since[l]+more })
}

// count returns the steps of all loops.
func (r *record) count() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int{}
	for l, n := range r.steps {
		all[l] = n
	}
	return all
}

// unexpected returns the refusals that are not allowed.
func (r *record) unexpected(allowed ...refusal) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f, n := range r.refused {
		if !slices.Contains(allowed, f) {
			all = append(all, fmt.Sprintf("%d times %+v", n, f))
		}
	}
	slices.Sort(all)
	return all
}
