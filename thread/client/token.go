package client

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// StaticToken is a Client's Token that never changes.
func StaticToken(token string) func() (string, error) {
	return func() (string, error) { return token, nil }
}

// FileToken is a Client's Token that stands in a file, which somebody renews. While the file is being replaced the last
// token serves.
func FileToken(path string) func() (string, error) {
	var mu sync.Mutex
	var last string
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		b, err := os.ReadFile(path)
		if token := strings.TrimSpace(string(b)); err == nil && token != "" {
			last = token
		} else if last == "" {
			if err == nil {
				err = errors.New("the file is empty")
			}
			return "", fmt.Errorf("read the token: %w", err)
		}
		return last, nil
	}
}
