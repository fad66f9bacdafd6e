#!/bin/sh
# Builds this commit twice, and compares the programs: in a clone with this machine's caches and settings, and from a
# source archive with an empty cache and all settings changed that must not count. Files that are changed and not
# committed are built as a commit of their own.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export GIT_AUTHOR_NAME=reproduce GIT_AUTHOR_EMAIL=reproduce GIT_COMMITTER_NAME=reproduce GIT_COMMITTER_EMAIL=reproduce

commit=$(git -C "$root" stash create)
commit=${commit:-$(git -C "$root" rev-parse HEAD)}
git clone -q --shared --no-checkout "$root" "$dir/clone"
git -C "$dir/clone" checkout -q --detach "$commit"
make -s -C "$dir/clone" build runners BIN="$dir/clone/bin"

archive=$dir/archive/in/another/folder
mkdir -p "$archive" "$dir/home"
git -C "$dir/clone" archive "$commit" | tar -x -C "$archive"
(
	umask 077
	GOMODCACHE=$(go env GOMODCACHE) GOPROXY=$(go env GOPROXY) GOSUMDB=$(go env GOSUMDB) GOCACHE=$dir/cache
	export GOMODCACHE GOPROXY GOSUMDB GOCACHE
	export HOME="$dir/home" TZ=Asia/Kathmandu GOFLAGS='-buildvcs=true -gcflags=-N' GOAMD64=v3 GOARM64=v9.0 CGO_ENABLED=1
	unset XDG_CACHE_HOME ARBE_CACHE MAKEFLAGS MAKELEVEL
	make -s -C "$archive" build runners BIN="$archive/bin"
)
cd "$dir/clone/bin"
for program in *; do
	cmp "$program" "$archive/bin/$program"
done
"$archive/bin/arbe" version
sha256sum -- *
