package runner

import (
	"runtime"
	"sync"
)

// Numbers of operating system threads that a runner process needs at most: one for each system call that may block
// beside others, for each processor that Go uses, and for Go itself.
const (
	KeeperThreads = 3
	WorkerThreads = 10
)

// WarmUp starts this process's threads, which then stay. Go ends a process that can't start one more thread, which an
// agent at the limit on processes causes. If there is no room for the threads now, the process ends here, before it has
// any work, and its keeper retries later.
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
