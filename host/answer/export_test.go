package answer

import (
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread/redact"
)

// Redacted returns a model whose replies have no secrets.
func Redacted(m model.Model, hide *redact.Redactor) model.Model { return redacted{m, hide} }

// For tests of what a Dispatcher gives to its host.
var (
	ThreadOf  = (*Dispatcher).thread
	ModelOf   = (*Dispatcher).model
	ToolsOf   = (*Dispatcher).tools
	ReserveOf = (*Dispatcher).reserve
)
