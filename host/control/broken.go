package control

import (
	"io"
	"net"
	"syscall"
)

// brokenPipes are the errors of a connection that ended while it was in use.
var brokenPipes = []error{
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
	syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED, syscall.ENOENT,
}
