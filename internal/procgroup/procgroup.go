// Package procgroup starts commands whose processes can be killed as one, or that outlive their terminal. Where the
// system has no process groups, only the command itself is killed.
package procgroup
