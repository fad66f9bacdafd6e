package sandbox

// GitPrelude is the beginning of every script that runs git in a box, as g. Configuration of the box that decides the
// content of a commit (identity, filters, ignored files) stays in force; any that runs other programs or hides work is
// overridden. The working directory must be the repository: a repository of a folder above it is not the box's.
const GitPrelude = `
export LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_EDITOR=: GIT_NO_REPLACE_OBJECTS=1 GIT_CEILING_DIRECTORIES="${PWD%/*}"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_NAMESPACE GIT_COMMON_DIR GIT_PREFIX
g() {
	git --no-pager -c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false \
		-c gc.auto=0 -c maintenance.auto=false -c status.showUntrackedFiles=normal -c diff.ignoreSubmodules=none "$@"
}
`
