package view

// Join returns the items of two successive pieces of a thread as one list: calls with results that were in the newer
// piece, verdicts whole. Neither list is changed.
func Join(older, newer []Item) []Item {
	var b Builder
	var l List
	for _, items := range [][]Item{older, newer} {
		for _, i := range items {
			for _, c := range b.put(i) {
				l.Change(c)
			}
		}
	}
	return l.Items
}
