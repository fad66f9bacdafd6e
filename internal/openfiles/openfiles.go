// Package openfiles returns how many files this process may have open.
package openfiles

// common is what most systems allow a process.
const common = 1024
