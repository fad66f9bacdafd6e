package main

import (
	"bytes"
	"encoding/pem"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the id of the image's user and group.
const user = 65532

// image returns the image of a processor, with files of its archive: programs and what is in share/doc, and nothing
// that these do not need.
func (r *release) image(arch string, archived []file) (v1.Image, error) {
	entries := []entry{
		{name: "data/", mode: 0o700, owner: user},
		{name: "tmp/", mode: 0o777 | fs.ModeSticky},
		{name: "etc/passwd", mode: 0o644, text: []byte("root:x:0:0::/:/\narbe:x:65532:65532::/data:/\n")},
		{name: "etc/group", mode: 0o644, text: []byte("root:x:0:\narbe:x:65532:\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: authorities()},
	}
	for _, f := range archived {
		e := entry{name: strings.TrimPrefix(installed(f.name), "/"), mode: f.mode, from: f.from}
		switch {
		case f.name == "bin/"+boxRunner+arch: // the same program
			e.from, e.link = "", "../../bin/arbe-pi-runner"
		case strings.HasPrefix(f.name, "bin/"), strings.HasPrefix(f.name, "share/doc/"):
		default:
			continue
		}
		entries = append(entries, e)
	}
	path := filepath.Join(r.work, "layer-"+arch+".tar.gz")
	err := writeFile(path, func(w *os.File) error { return writeLayer(w, withFolders(entries), r.time) })
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), r.config(arch))
	if err != nil {
		return nil, err
	}
	history := v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make dist"}
	return mutate.Append(img, mutate.Addendum{Layer: layer, History: history})
}

// config returns how the image runs: a thread server that listens to other machines, so it needs a secret.
func (r *release) config(arch string) *v1.ConfigFile {
	summary, _, _ := strings.Cut(description, "\n")
	return &v1.ConfigFile{
		Created: v1.Time{Time: r.time}, OS: "linux", Architecture: arch, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         "65532:65532",
			Env:          []string{"PATH=/usr/bin", "HOME=/data", "ARBE_DATA=/data"},
			Entrypoint:   []string{"/usr/bin/arbe"},
			Cmd:          []string{"serve", "--addr", ":8787"},
			ExposedPorts: map[string]struct{}{"8787/tcp": {}},
			Volumes:      map[string]struct{}{"/data": {}},
			WorkingDir:   "/data",
			Healthcheck: &v1.HealthConfig{
				Test:     []string{"CMD", "/usr/bin/arbe", "serve", "health"},
				Interval: 30 * time.Second, Timeout: 10 * time.Second, StartPeriod: 30 * time.Second, Retries: 3,
			},
			Labels: map[string]string{
				"org.opencontainers.image.title":       "arbe",
				"org.opencontainers.image.description": summary,
				"org.opencontainers.image.version":     r.version,
				"org.opencontainers.image.revision":    r.commit,
				"org.opencontainers.image.created":     r.time.Format(time.RFC3339),
				"org.opencontainers.image.licenses":    "Apache-2.0",
			},
		},
	}
}

// authorities returns the certificates that Mozilla trusts, as Go has them.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file of certificates can't hold it
			// A buffer takes all.
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return text.Bytes()
}

// images writes the images that are made into dir: each for docker load, and all as one layout of OCI.
func (r *release) images(dir string) error {
	tag, err := name.NewTag("arbe:" + r.version)
	if err != nil {
		return err
	}
	base := filepath.Join(dir, "arbe_"+r.version+"_image")
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(r.made)) {
		img := r.made[arch]
		err := writeFile(base+"_"+arch+".tar", func(w *os.File) error { return tarball.Write(tag, img, w) })
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	folder := filepath.Join(r.work, "layout")
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": tag.Name(),
	}))
	if err != nil {
		return err
	}
	return writeFile(base+".tar", func(w *os.File) error { return writeLayout(w, folder, r.time) })
}
