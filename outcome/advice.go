package outcome

import "regexp"

// Words in the agents' and providers' messages.
var (
	noKey = regexp.MustCompile(`(?i)api[ _-]?key|not logged in|/login|unauthori[sz]ed|authentication|\b401\b|` +
		`missing environment variable`)
	noModel   = regexp.MustCompile(`(?i)model\b.*\b(not found|not exist|unknown|invalid|not supported)|model_not_found`)
	noNetwork = regexp.MustCompile(`(?i)connection error|unable to connect|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|` +
		`ConnectionRefused|fetch failed|lookup address|network`)
	needsNode = regexp.MustCompile(`it needs Node [\d.]+ or newer`)
	notHere   = regexp.MustCompile(`is not installed here`)
)

// Advice returns the next step after a failure of the class with the message, for people; "" if there is none that
// always helps. The message of an agent is free text: a wrong guess costs a wrong hint, and decides nothing.
func Advice(class, message string) string {
	switch class {
	case ClassProvider, ClassExit, ClassUnreachable:
		switch {
		case needsNode.MatchString(message):
			return "put a newer Node first in PATH, then run it again"
		case noKey.MatchString(message):
			return "set the provider's API key where the agent runs (for a box: --env NAME), then resume"
		case noModel.MatchString(message):
			return "name another model with --model, then resume"
		case class == ClassUnreachable, noNetwork.MatchString(message):
			return "check the network and the provider's address, then resume"
		}
	case ClassDiskFull:
		return "free space on the disk, then resume"
	case ClassOOM:
		return "give the agent more memory, then resume"
	case ClassSpawn:
		if notHere.MatchString(message) {
			return "install the agent, or name its program with --agent-bin"
		}
	}
	return ""
}
