package folder

// verdict is what to do with a path of the host's folder.
type verdict int

// The verdicts.
const (
	keep     verdict = iota // the host's version stays: it is the box's, or only the host has changed it
	apply                   // the box's version takes the place of the host's
	conflict                // both have changed it, differently: the host's version stays, the box's goes beside it
)

// decide compares the three versions of a path. Folders differ in their mode alone: two that were made on both sides
// are one, with the mode of the host's, and where the host has no folder any more, its new mode is dropped.
func decide(base, host, box Entry) verdict {
	switch {
	case box == base, box == host:
		return keep
	case host == base, interim(host, box):
		return apply
	case box.Type == Dir && base.Type == Absent && host.Type == Dir:
		return keep
	case box.Type == Dir && base.Type == Dir && host.Type != Dir:
		return keep
	}
	return conflict
}

// interim reports whether host is a folder as it is while its content is applied: its owner may write to it.
func interim(host, box Entry) bool {
	return host.Type == Dir && box.Type == Dir && host.Mode != box.Mode && host.Mode == box.Mode|ownerMode
}

// ownerMode is the mode that a folder has at least while something is made in it.
const ownerMode = 0o700
