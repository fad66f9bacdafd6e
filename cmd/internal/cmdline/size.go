package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// byteSize is a flag's value in bytes, written as 1000, 64KiB, 256MiB, 1GiB or 1TiB.
type byteSize int64

// Set is flag.Value's.
func (s *byteSize) Set(text string) error {
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
	*s = byteSize(n << shift)
	return nil
}

// String is flag.Value's.
func (s *byteSize) String() string {
	if s == nil {
		return "0"
	}
	return strconv.FormatInt(int64(*s), 10)
}

// sizeOf returns the value of a flag that is a size.
func sizeOf(c *cli.Context, name string) int64 { return int64(*c.Generic(name).(*byteSize)) }
