// Package openfiles returns how many files this process may have open.
package openfiles

// common is the limit of open files that most systems set for a process.
const common = 1024
