package cmdline

import "strings"

// next returns the end of a message about an unknown word: the name that was probably meant, "" for none, and the help
// of the command.
func next(name, command string) string {
	if name == "" {
		return "; see " + command + " --help"
	}
	return ", did you mean " + name + "? See " + command + " --help"
}

// nearest returns the name that a mistyped word stands for; "" if none is near. Near is a name with the word as its
// beginning, or with one mistake in four letters.
func nearest(word string, names []string) string {
	best, found := 1+(len(word)+3)/4, ""
	for _, name := range names {
		d := mistakes(word, name)
		if len(word) > 1 && strings.HasPrefix(name, word) {
			d = min(d, 1)
		}
		if d < best {
			best, found = d, name
		}
	}
	return found
}

// mistakes returns how many letters are missing, surplus, wrong or swapped with their neighbour.
func mistakes(a, b string) int {
	before, last := []int{}, make([]int, len(b)+1) // the rows of i-2 and i-1
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
