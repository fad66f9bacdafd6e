package stdin

// Type gives keys to an editor, and returns the texts that it makes, what it shows, and whether it has ended.
func Type(keys string) (texts []string, echo string, end bool) {
	var e editor
	for _, b := range []byte(keys) {
		shown, s := e.key(b)
		echo += string(shown)
		switch s {
		case whole:
			texts = append(texts, string(e.text))
			e = editor{}
		case ended:
			return texts, echo, true
		}
	}
	if len(e.text) > 0 {
		texts = append(texts, "…"+string(e.text))
	}
	return texts, echo, false
}
