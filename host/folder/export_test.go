package folder

// OnStep has f called before each change of the folder.
func (s *Sync) OnStep(f func() error) { s.step = f }

// OnRead has f called before CopyIn reads a path.
func (f *Folder) OnRead(read func(name string)) { f.reading = read }

// Impatient has Pull not wait for another git.
func (s *Sync) Impatient() { s.lockWait = 1 }

// Excluded reports whether patterns exclude a path.
func Excluded(patterns []string, name string, folder bool) (bool, error) {
	m, err := newMatcher(patterns)
	return m.hides(name, folder), err
}
