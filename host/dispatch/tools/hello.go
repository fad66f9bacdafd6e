package tools

import (
	"context"

	"arbe.0sk.ar/runner/host/dispatch"
)

// helloWorld does nothing: it shows that a bot can call tools.
func helloWorld() dispatch.Tool {
	t := shown("hello_world", "Say hello. It changes nothing.", `{}`)
	return dispatch.Tool{Tool: t, Run: taking(t, hello)}
}

func hello(_ context.Context, c dispatch.ToolCall, _ struct{}) (dispatch.ToolResult, error) {
	return result("Hello from the thread %q.", c.Room.Thread)
}
