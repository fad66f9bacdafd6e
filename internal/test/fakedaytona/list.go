package fakedaytona

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// list gives a page of the boxes, the newest first. Those that are gone are in it for a while, as they were.
func (s *Server) list(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, before := 100, s.seq+1
	var err error
	if v := q.Get("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > 200 {
			return nil, apiError{http.StatusBadRequest, "limit must be between 1 and 200"}
		}
	}
	if v := q.Get("cursor"); v != "" {
		if before, err = strconv.Atoi(v); err != nil {
			return nil, apiError{http.StatusBadRequest, "Invalid cursor"}
		}
	}
	var labels map[string]string
	if v := q.Get("labels"); v != "" {
		if err := json.Unmarshal([]byte(v), &labels); err != nil {
			return nil, apiError{http.StatusBadRequest, "Invalid labels JSON format"}
		}
	}
	var states []string
	for _, v := range q["states"] {
		states = append(states, strings.Split(v, ",")...)
	}
	if slices.Contains(states, destroyed) {
		return nil, apiError{http.StatusBadRequest, "states must be of the states that can be listed"}
	}
	page := struct {
		Items []any   `json:"items"`
		Next  *string `json:"nextCursor"`
	}{Items: []any{}}
	all := s.sorted()
	slices.Reverse(all)
	last := 0
	for _, b := range all {
		s.settle(b)
		v := s.item(b)
		if b.State == destroyed {
			if s.now().Sub(b.gone) >= s.ListLag {
				continue
			}
			v["state"], v["desiredState"] = started, started
		}
		if b.seq >= before || !has(b.Labels, labels) || len(states) > 0 &&
			!slices.Contains(states, v["state"].(string)) ||
			!strings.HasPrefix(b.Name, q.Get("name")) || !strings.HasPrefix(b.ID, q.Get("id")) {
			continue
		}
		if len(page.Items) == limit {
			next := strconv.Itoa(last)
			page.Next = &next
			break
		}
		page.Items = append(page.Items, v)
		last = b.seq
	}
	return page, nil
}

// has reports whether all of want are among the labels.
func has(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
