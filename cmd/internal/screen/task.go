package screen

import (
	"context"
	"time"
)

// taskTick is how often the states of open tasks are read for the live line, mostTasks of how many: the newest ones.
const (
	taskTick  = 2 * time.Second
	mostTasks = 3
)

// look reads how the open tasks do. s.mu is not held.
func (s *Screen) look(ctx context.Context) {
	if s.Task == nil {
		return
	}
	s.mu.Lock()
	open := s.builder.Tasks()
	s.mu.Unlock()
	var tasks []string
	for _, id := range open[max(0, len(open)-mostTasks):] {
		if state := s.Task(ctx, id); state != "" {
			tasks = append(tasks, "task "+id+": "+state)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = tasks
}

// titled returns what a sentence calls another thread: its name, where that is known, and its id.
func (s *Screen) titled(id string) string {
	if s.Title != nil {
		if title := s.Title(context.Background(), id); title != "" {
			return title + ", thread " + id
		}
	}
	return "thread " + id
}
