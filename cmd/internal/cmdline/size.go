package cmdline

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// Size is the value of a flag in bytes, written as 1000, 64KiB, 256MiB, 1GiB or 1TiB.
type Size int64

// Set implements flag.Value.
func (s *Size) Set(text string) error {
	number, shift := text, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q: want bytes, as 1000, 64KiB, 256MiB, 1GiB or 1TiB", text)
	}
	*s = Size(n << shift)
	return nil
}

// String implements flag.Value.
func (s *Size) String() string {
	if s == nil {
		return "0"
	}
	return strconv.FormatInt(int64(*s), 10)
}

// SizeOf returns the value of a flag whose Value is a Size, in bytes.
func SizeOf(c *cli.Context, name string) int64 { return int64(*c.Generic(name).(*Size)) }
