package folder

// verdict is the decision about a path of the host's folder.
type verdict int

// The verdicts.
const (
	keep     verdict = iota // keep the host's version: it equals the box's, or only the host has changed it
	apply                   // replace the host's version by the box's
	conflict                // both have changed it differently: keep the host's version and put the box's beside it
)

// decide compares the three versions of a path. Folders differ in their mode only: two that were created on both sides
// are the same, with the host's mode. A new mode of a folder that the host has deleted is dropped.
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

// interim reports whether host is the box's folder while its content is applied: with the box's mode and ownerMode.
func interim(host, box Entry) bool {
	return host.Type == Dir && box.Type == Dir && host.Mode != box.Mode && host.Mode == box.Mode|ownerMode
}

// ownerMode is the least mode of a folder while files are created in it.
const ownerMode = 0o700
