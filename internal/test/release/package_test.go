package release_test

import (
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/debian"
)

// A systemctl in place of the real one, as if systemd ran here: it notes the calls that need systemd, and passes on
// those that only change links.
const systemctl = `mkdir -p /run/systemd/system
mv /usr/bin/systemctl /usr/bin/systemctl.real
cat >/usr/bin/systemctl <<'END'
#!/bin/sh
case "$*" in *enable*) ;; *) echo "$@" >>/run/systemctl ;; esac
case "$*" in *able*) SYSTEMD_OFFLINE=1 exec /usr/bin/systemctl.real "$@" ;; esac
END
chmod 755 /usr/bin/systemctl
: >/run/systemctl`

// called returns what systemctl was called with since the last call of called.
func (r *root) called() string {
	r.t.Helper()
	return r.run("cat /run/systemctl; : >/run/systemctl")
}

// data makes what a thread server leaves in the data folder, by a server that runs as the package's user.
const data = `cd /
setpriv --reuid arbe --regid arbe --clear-groups arbe --data /var/lib/arbe serve --addr 127.0.0.1:0 2>/run/log &
arbe --data /var/lib/arbe serve health --wait 5m || { cat /run/log; exit 1; }
[ $(stat -c %U:%a /var/lib/arbe/secret) = arbe:600 ]
kill $!
wait $!`

// disabled are the calls of systemctl that a removal of the package makes first.
const disabled = `--quiet disable arbe-dispatch.service
--quiet disable arbe-provision.service
--quiet disable arbe-proxy.service
--quiet disable arbe-reconcile.service
--quiet disable arbe-serve.service
stop arbe-*.service`

// TestFullDeb installs the package, upgrades it, removes it and purges it.
func TestFullDeb(t *testing.T) {
	t.Parallel()
	f := released(t)
	r := newRoot(t, f.dir, "")
	if _, err := r.try("command -v dpkg"); err != nil {
		t.Skip("a root file system of its own can't be made here: no dpkg")
	}
	r.run(systemctl)
	deb := "/dist/" + f.deb()
	r.run("dpkg -i " + deb)
	if got := r.called(); got != "daemon-reload" {
		t.Errorf("an installation calls systemctl %s", got)
	}
	installed(r, f)
	r.holds("dpkg --verify arbe")
	r.holds("cmp /usr/share/doc/arbe/copyright /usr/share/doc/arbe/LICENSE")
	r.holds("[ -e /usr/share/zsh/vendor-completions/_arbe ]")
	r.run(data)
	r.run("systemctl enable arbe-serve")

	// A later version has other files, another server's environment and one that nobody has changed here.
	r.run(`echo DURABLE_STREAMS_SECRET=theirs >>/etc/arbe/serve.env
echo keys >/etc/arbe/secret-keys
dpkg-deb -R ` + deb + ` /run/later
cd /run/later
sed -i 's/^Version: .*/&+later/' DEBIAN/control
rm usr/share/man/man1/arbe-pi-runner.1.gz
echo '# later' | tee -a etc/arbe/serve.env >>etc/arbe/proxy.env
dpkg-deb -Znone -b . /run/later.deb
dpkg -i --force-confold /run/later.deb`)
	if got := r.called(); got != "daemon-reload\ntry-restart arbe-*.service" {
		t.Errorf("an upgrade calls systemctl %s", got)
	}
	r.holds(`[ "$(dpkg-query -W -f '${Version}/${Status}' arbe)" = "` + f.packaged() + `+later/install ok installed" ]`)
	r.holds("grep -q theirs /etc/arbe/serve.env; grep -q later /etc/arbe/proxy.env; [ -e /var/lib/arbe/log ]")
	r.holds("[ ! -e /usr/share/man/man1/arbe-pi-runner.1.gz ]")
	r.holds("[ -L /etc/systemd/system/multi-user.target.wants/arbe-serve.service ]")

	r.run("dpkg -r arbe")
	if got := r.called(); got != disabled+"\ndaemon-reload" {
		t.Errorf("a removal calls systemctl %s", got)
	}
	r.holds("[ ! -e /usr/bin/arbe ]; [ ! -e /usr/lib/arbe ]")
	r.holds("[ ! -L /etc/systemd/system/multi-user.target.wants/arbe-serve.service ]")
	r.holds("grep -q theirs /etc/arbe/serve.env; [ -e /var/lib/arbe/log ]; getent passwd arbe")

	if got := r.run("dpkg -P arbe"); !strings.Contains(got, "/var/lib/arbe and the user arbe are still there") {
		t.Errorf("purging prints %s", got)
	}
	r.holds("[ ! -e /etc/arbe/serve.env ]; [ -e /etc/arbe/secret-keys ]; [ -e /var/lib/arbe/log ]; getent passwd arbe")
	r.run("dpkg -i " + deb + "; ARBE_PURGE_DATA=yes dpkg -P arbe")
	r.holds("[ ! -e /var/lib/arbe ]; ! getent passwd arbe; ! getent group arbe; [ -e /etc/arbe/secret-keys ]")
}

// installed checks what every package has installed.
func installed(r *root, f files) {
	r.t.Helper()
	for _, program := range []string{"arbe", "arbe-pi-runner", "/usr/lib/arbe/arbe-pi-runner-linux-$ARCH"} {
		got := r.run("ARCH=" + strings.TrimPrefix(target, "linux/") + "; " + program + " version")
		if want := " " + f.version + "+" + f.commit[:12] + " "; !strings.Contains(got, want) {
			r.t.Errorf("%s prints %s, want %s…", program, got, want)
		}
	}
	r.holds("[ $(stat -c %U:%G:%a /var/lib/arbe) = arbe:arbe:700 ]")
	r.holds("[ $(getent passwd arbe | cut -d : -f 6,7) = /var/lib/arbe:/usr/sbin/nologin ]")
	r.holds("[ $(stat -c %U:%a /etc/arbe/serve.env) = root:600 ]; [ $(stat -c %a /etc/arbe) = 755 ]")
	r.holds("[ -e /usr/lib/arbe/local-boxes.conf ]; ! grep -rn -e /usr/local -e deploy/ /usr/lib/arbe/*.conf " +
		"/usr/lib/systemd/system/arbe-*.service")
	r.holds("gzip -dc /usr/share/man/man1/arbe.1.gz | grep -q '^.TH'")
	r.holds(`for unit in /usr/lib/systemd/system/arbe-*.service; do
	! systemctl is-enabled ${unit##*/} >/dev/null
done`)
	if _, err := r.try("command -v systemd-analyze"); err == nil {
		const verify = "systemd-analyze verify /usr/lib/systemd/system/arbe-*.service"
		if out, err := r.try(verify); err != nil || strings.Contains(out, "arbe") { // it warns of others' units, too
			r.t.Errorf("%s: %v, %s", verify, err, out)
		}
	}
}

// TestFullRPM reads the package by rpm, installs it, upgrades it and erases it.
func TestFullRPM(t *testing.T) {
	t.Parallel()
	f := released(t)
	lower, err := debian.Find("rpm")
	if err != nil {
		t.Skipf("rpm can't run here: %v", err)
	}
	r := newRoot(t, f.dir, string(lower))
	file := filepath.Join("/dist", f.rpm())
	r.run(systemctl + `
cd /lower/usr
cp -a --parents bin/rpm* lib/rpm lib/*-linux-gnu/librpm* lib/*-linux-gnu/liblua* lib/*-linux-gnu/libpopt* /usr
rpm --initdb`)
	if got, want := r.run("rpm -qp --qf '%{NAME} %{VERSION}-%{RELEASE} %{LICENSE} %{BUILDHOST}' "+file),
		"arbe "+f.packaged()+"-1 Apache-2.0 localhost"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := r.run("rpm -qpc " + file); got != "/etc/arbe/host.env\n/etc/arbe/proxy.env\n/etc/arbe/serve.env" {
		t.Errorf("configuration: %s", got)
	}
	r.holds("rpm -K --nosignature " + file)
	// Debian's packages don't count for rpm.
	r.run("rpm -i --nodeps " + file)
	if got := r.called(); got != "daemon-reload" {
		t.Errorf("an installation calls systemctl %s", got)
	}
	installed(r, f)
	r.holds("rpm -V --nodeps arbe")
	r.run(data)
	r.run("echo DURABLE_STREAMS_SECRET=theirs >>/etc/arbe/serve.env; rpm -U --nodeps --replacepkgs " + file)
	if got := r.called(); got != "daemon-reload\ntry-restart arbe-*.service" {
		t.Errorf("an upgrade calls systemctl %s", got)
	}
	r.run("rpm -e arbe")
	if got := r.called(); got != disabled+"\ndaemon-reload" {
		t.Errorf("erasing calls systemctl %s", got)
	}
	r.holds("[ ! -e /usr/bin/arbe ]; [ ! -e /usr/lib/arbe ]; grep -q theirs /etc/arbe/serve.env.rpmsave")
	r.holds("[ -e /var/lib/arbe/log ]; getent passwd arbe")
}
