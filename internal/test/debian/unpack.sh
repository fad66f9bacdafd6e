#!/bin/sh
# unpack.sh DIR PACKAGE…: downloads packages of Debian's and unpacks them into DIR/root, whole or not at all.
set -eu
dir=$1
shift
[ ! -e "$dir" ] || exit 0
mkdir -p "$(dirname "$dir")"
new=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
mkdir -p "$new/debs" "$new/root/usr"
cd "$new/debs"
apt-get -qq download "$@" || {
	apt-get -qq update
	apt-get -qq download "$@"
}
for deb in *.deb; do
	dpkg -x "$deb" ../root
done
cd ../root
# As on a machine of today: /bin is /usr/bin.
for folder in bin sbin lib; do
	[ ! -d "$folder" ] || {
		cp -a "$folder" usr
		rm -r "$folder"
	}
done
rm -r ../debs
mv -T "$new" "$dir" || [ -e "$dir" ] # another one was faster
