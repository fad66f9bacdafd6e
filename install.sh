#!/bin/sh
# Installs arbe from the files of a release. It needs tar, sha256sum or shasum, and curl or wget for an address.
#
#   sh install.sh [--key FILE] FROM
#
# FROM is the address of a folder with the files (https://…), or a folder on this machine. The archive for this machine
# is checked against SHA256SUMS, and with --key that file against its signature: FILE has the public key that signs
# releases. All goes below $PREFIX: /usr/local for root, ~/.local for others. Nothing is installed unless all of it can
# be; the script asks for no other rights, and each file is replaced in one step, also while the programs run.
set -eu
umask 022

usage='usage: sh install.sh [--key FILE] FROM   (PREFIX=DIR: install below DIR)'
staging='' downloads=''

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

tidy() {
	[ -z "$staging" ] || rm -rf "$staging"
	[ -z "$downloads" ] || rm -rf "$downloads"
}

has() { command -v "$1" >/dev/null 2>&1; }

# platform prints the system and the processor as in the name of an archive.
platform() {
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) fail "no archive for the system $(uname -s): there is one for Linux, macOS, and a zip for Windows" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) echo "${system}_amd64" ;;
	aarch64 | arm64) echo "${system}_arm64" ;;
	*) fail "no archive for the processor $(uname -m): there is one for x86_64 and for aarch64" ;;
	esac
}

# get copies the file $1 of the release to $2.
get() {
	case $from in
	http://* | https://*)
		if has curl; then
			curl -fsSL --retry 3 -o "$2" "$from/$1" || fail "$from/$1 can't be downloaded"
		elif has wget; then
			wget -q -O "$2" "$from/$1" || fail "$from/$1 can't be downloaded"
		else
			fail "curl or wget is needed for $from"
		fi
		;;
	*://*) fail "$from: want https://…, http://… or a folder" ;;
	*) cp "$from/$1" "$2" || fail "$from has no $1" ;;
	esac
}

# sum prints the SHA-256 of the file $1.
sum() {
	if has sha256sum; then
		sha256sum "$1"
	else
		shasum -a 256 "$1"
	fi | cut -d ' ' -f 1
}

# verify checks the signature of SHA256SUMS by the keys in the file $1.
verify() {
	[ -r "$1" ] || fail "$1, which --key names, can't be read"
	has ssh-keygen || fail "ssh-keygen (OpenSSH 8.1 or newer) is needed to check the signature"
	get SHA256SUMS.sig "$downloads/SHA256SUMS.sig"
	sed -n '/^[a-z]/s/^/arbe namespaces="arbe-release" /p' "$1" >"$downloads/signers"
	ssh-keygen -Y verify -f "$downloads/signers" -I arbe -n arbe-release -s "$downloads/SHA256SUMS.sig" \
		<"$downloads/SHA256SUMS" >"$downloads/verified" 2>&1 ||
		fail "the signature of SHA256SUMS is not by a key of $1: $(cat "$downloads/verified")"
}

# folders makes the folders of $1 below $prefix, or none of them where one that is there can't be written.
folders() {
	find "$1" -type d | sed "s|^$1||" >"$downloads/folders"
	while read -r folder; do
		[ ! -e "$prefix$folder" ] || writable "$prefix$folder"
	done <"$downloads/folders"
	while read -r folder; do
		mkdir -p "$prefix$folder"
	done <"$downloads/folders"
}

writable() {
	[ -d "$1" ] && [ -w "$1" ] || fail "$1 can't be written: run this as a user who may, or set PREFIX"
}

# replace moves the files of $1 below $prefix, each in one step; what runs others comes last.
replace() {
	{
		find "$1" -type f ! -path "$1/bin/*"
		find "$1" -type f -path "$1/bin/*-linux-*"
		find "$1" -type f -path "$1/bin/*" ! -path "$1/bin/*-linux-*"
	} | while read -r file; do
		mv -f "$file" "$prefix${file#"$1"}" || fail "$prefix${file#"$1"} can't be replaced"
	done
}

main() {
	key=
	while [ $# -gt 0 ]; do
		case $1 in
		--key)
			[ $# -ge 2 ] || fail "$usage"
			key=$2
			shift
			;;
		-h | --help)
			echo "$usage"
			exit
			;;
		-*) fail "$usage" ;;
		*) break ;;
		esac
		shift
	done
	[ $# = 1 ] || fail "$usage"
	from=${1%/}
	if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
	prefix=${PREFIX:-$prefix}
	prefix=${prefix%/}
	case $prefix in
	/*) ;;
	*) fail "PREFIX is $prefix: want a path that begins with /" ;;
	esac
	case $prefix in
	*[!A-Za-z0-9/._+-]*) fail "PREFIX is $prefix: units of systemd can't have such a path" ;;
	esac

	machine=$(platform)
	has sha256sum || has shasum || fail "sha256sum or shasum is needed"
	downloads=$(mktemp -d)
	get SHA256SUMS "$downloads/SHA256SUMS"
	signed="nobody has checked a signature (--key)"
	if [ -n "$key" ]; then
		verify "$key"
		signed="signed by a key of $key"
	fi

	archive=$(sed -n "s/^[0-9a-f]\{64\}  \(arbe_[A-Za-z0-9.+-]*_$machine\.tar\.gz\)$/\1/p" "$downloads/SHA256SUMS")
	[ -n "$archive" ] || fail "$from/SHA256SUMS has no archive for $machine"
	get "$archive" "$downloads/$archive"
	want=$(sed -n "s/  $archive$//p" "$downloads/SHA256SUMS")
	got=$(sum "$downloads/$archive")
	[ "$got" = "$want" ] || fail "$archive is damaged: its SHA-256 is $got, and SHA256SUMS has $want"

	mkdir -p "$prefix" 2>/dev/null || true
	writable "$prefix"
	staging=$(mktemp -d "$prefix/.arbe-install.XXXXXX")
	tar -xzf "$downloads/$archive" -C "$staging"
	files=$staging/${archive%.tar.gz}
	[ -x "$files/bin/arbe" ] || fail "$archive has no bin/arbe"
	version=$("$files/bin/arbe" version) || fail "arbe does not run on this machine"
	find "$files" -name '*.service' | while read -r unit; do
		sed "s|/usr/local/bin/|$prefix/bin/|g" "$unit" >"$unit.new"
		mv "$unit.new" "$unit"
	done
	folders "$files"
	replace "$files"

	echo "installed $version"
	echo "into $prefix/bin, lib and share, from $from: the sum is right, $signed"
	case ":$PATH:" in
	*":$prefix/bin:"*) ;;
	*) echo "$prefix/bin is not in PATH: export PATH=$prefix/bin:\$PATH" ;;
	esac
}

trap tidy EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
main "$@"
