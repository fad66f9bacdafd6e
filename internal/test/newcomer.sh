#!/bin/sh
# What a newcomer waits for, from a clone to the verdict of the demo, and to a run with everything built: seconds for
# each step. Nothing is there before but Go, git and npm: caches of modules, builds and agents are in a folder of their
# own, which is removed at the end.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
proxy=$(go env GOPROXY) sums=$(go env GOSUMDB) nosum=$(go env GONOSUMDB)
registry=$(npm config get registry 2>/dev/null)
step() {
	name=$1
	shift
	began=$(date +%s)
	"$@" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
	printf '%4d s  %s\n' $(($(date +%s) - began)) "$name"
}
mkdir "$dir/home"
fresh() {
	env -i PATH="$PATH" HOME="$dir/home" LANG=C.UTF-8 GOPROXY="$proxy" GOSUMDB="$sums" GONOSUMDB="$nosum" \
		NPM_CONFIG_REGISTRY="$registry" ${SSL_CERT_FILE:+SSL_CERT_FILE="$SSL_CERT_FILE"} \
		${NODE_EXTRA_CA_CERTS:+NODE_EXTRA_CA_CERTS="$NODE_EXTRA_CA_CERTS"} \
		${HTTPS_PROXY:+HTTPS_PROXY="$HTTPS_PROXY"} ${NO_PROXY:+NO_PROXY="$NO_PROXY"} "$@"
}
step 'git clone' git clone -q "$root" "$dir/arbe"
cd "$dir/arbe"
step 'go mod download' fresh go mod download
step 'make build' fresh make build
step 'make demo, to its verdict (installs pi)' fresh make demo
step 'serve, run and verdict, with all built' fresh make demo
step 'make install PREFIX=…' fresh make install PREFIX="$dir/prefix"
