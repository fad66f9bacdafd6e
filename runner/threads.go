package runner

import (
	"runtime"
	"sync"
)

// Threads that a runner process needs at most: one for each call of the kernel that may block while others do, for
// the processors that Go uses, and for Go itself.
const (
	KeeperThreads = 3
	WorkerThreads = 10
)

// WarmUp makes this process's threads, which then stay: where an agent has filled the limit on processes, Go ends a
// process that needs one more. Should there be no room for them now, this process ends here, before it has any work,
// and its keeper tries again later.
func WarmUp(threads int) {
	var here, gone sync.WaitGroup
	leave := make(chan struct{})
	for range threads {
		here.Add(1)
		gone.Go(func() {
			runtime.LockOSThread() // each in a thread of its own
			here.Done()
			<-leave
			runtime.UnlockOSThread()
		})
	}
	here.Wait()
	close(leave)
	gone.Wait()
}
