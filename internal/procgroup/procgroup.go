// Package procgroup starts commands whose processes can be killed as one. Where the system has no process groups, only
// the command itself is killed.
package procgroup
