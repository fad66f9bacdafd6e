package dispatch_test

import (
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/internal/test/model"
)

// asked is a model server that keeps what it is asked.
type asked struct {
	url string

	mu        sync.Mutex
	rnd       *rand.Rand
	questions []botchaos.Question
	reply     func(r *rand.Rand, n int, q botchaos.Question) model.Reply
}

func newModel(t *testing.T) *asked {
	a := &asked{rnd: rand.New(rand.NewPCG(1, 1))}
	srv := httptest.NewServer(&model.Server{Answer: a.answer})
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	a.url = srv.URL
	return a
}

// script lets f reply, from a seed on.
func (a *asked) script(seed uint64, f func(r *rand.Rand, n int, q botchaos.Question) model.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rnd, a.reply = rand.New(rand.NewPCG(seed, 7)), f
}

func (a *asked) answer(r model.Request) model.Reply {
	q := botchaos.Parse(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := a.reply(a.rnd, len(a.questions), q)
	q.Text, q.Whole = reply.Text, reply.Status == 0 && reply.Cut == 0 && reply.Error == ""
	a.questions = append(a.questions, q)
	return reply
}

// byThread returns the questions that are about each thread's triggers.
func (a *asked) byThread(talks []*talk) map[string][]botchaos.Question {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := map[string]string{}
	for _, tk := range talks {
		for _, e := range tk.Entries {
			of[e.ID] = tk.Thread
		}
	}
	all := map[string][]botchaos.Question{}
	for _, q := range a.questions {
		if len(q.Asked) > 0 {
			all[of[q.Asked[0]]] = append(all[of[q.Asked[0]]], q)
		} else {
			all[""] = append(all[""], q)
		}
	}
	return all
}

// count returns how many questions have come.
func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.questions)
}
