package folder

// OnStep has f called before each change of the folder.
func (s *Sync) OnStep(f func() error) { s.step = f }

// Excluded reports whether patterns exclude a path.
func Excluded(patterns []string, name string, folder bool) (bool, error) {
	m, err := newMatcher(patterns)
	return m.hides(name, folder), err
}
