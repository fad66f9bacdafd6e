package listing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// ParseSince parses a duration as Go writes it, or a number of days, as 7d.
func ParseSince(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, is := strings.CutSuffix(text, "d"); is {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		d = time.Duration(n * float64(24*time.Hour))
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: want a duration, as 90m, 12h or 7d", text)
	}
	return d, nil
}

// Covers reports whether a filter covers a thread by its latest run: the harness and the start. It ignores statuses.
func Covers(f client.Filter, v thread.Summary) bool {
	began, err := time.Parse(time.RFC3339, v.StartedAt)
	return (len(f.Harnesses) == 0 || slices.Contains(f.Harnesses, v.Harness)) &&
		(f.Since.IsZero() || err == nil && !began.Before(f.Since))
}
