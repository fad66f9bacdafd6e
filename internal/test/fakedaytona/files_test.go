package fakedaytona_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// form is a multipart body of these fields, in this order; those whose name ends with "file" are files.
func form(t *testing.T, fields ...string) (body *bytes.Buffer, kind string) {
	t.Helper()
	body = &bytes.Buffer{}
	m := multipart.NewWriter(body)
	for i := 0; i < len(fields); i += 2 {
		make := m.CreateFormField
		if strings.HasSuffix(fields[i], "file") {
			make = func(name string) (io.Writer, error) { return m.CreateFormFile(name, "x") }
		}
		w, err := make(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return body, m.FormDataContentType()
}

func TestUpload(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	home := c.s.Boxes()[0].Home
	running := filepath.Join(home, "running")
	c.run(url, "cp $(command -v sleep) running; ./running 1000 >/dev/null 2>&1 &")
	for _, tt := range []struct {
		name   string
		fields []string
		status int
		want   string // of the answer
		files  map[string]string
	}{
		{
			"two",
			[]string{"files[0].path", "a/b/one", "files[0].file", "1", "files[1].path", home + "/two", "files[1].file", "22"},
			200,
			`{"files":[{"path":"a/b/one","bytes":1},{"path":"` + home + `/two","bytes":2}]}`,
			map[string]string{"a/b/one": "1", "two": "22"},
		},
		{
			"over another",
			[]string{"files[0].path", "two", "files[0].file", "3"},
			200, `"bytes":1`,
			map[string]string{"two": "3"},
		},
		{
			"no tilde",
			[]string{"files[0].path", "~/t", "files[0].file", "t"},
			200, `"~/t"`,
			map[string]string{"~/t": "t"},
		},
		{
			"wrong order",
			[]string{"files[0].file", "1", "files[0].path", "late"},
			400,
			`{"errors":["file[0]: missing .path metadata"],"files":null}`, nil,
		},
		{
			"one of two",
			[]string{"files[0].path", "two/x", "files[0].file", "1", "files[1].path", "three", "files[1].file", "333"},
			400,
			`"files":[{"path":"three","bytes":3}]`,
			map[string]string{"three": "333"},
		},
		{"a program that runs", []string{"files[0].path", "running", "files[0].file", "1"}, 400, "text file busy", nil},
		{"this machine", []string{"files[0].path", "/etc/none", "files[0].file", "1"}, 400, "outside of the box", nil},
	} {
		body, kind := form(t, tt.fields...)
		a := c.do("POST", url+"/files/bulk-upload", body, kind)
		if a.status != tt.status || !strings.Contains(a.body, tt.want) {
			t.Errorf("%s: %d %s", tt.name, a.status, a.body)
		}
		for name, want := range tt.files {
			p := filepath.Join(home, name)
			got, err := os.ReadFile(p)
			if err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			if fi, err := os.Stat(p); err != nil || fi.Mode() != 0o644 {
				t.Errorf("%s: %v, %v", name, fi.Mode(), err)
			}
		}
	}
	if fi, err := os.Stat(filepath.Join(home, "a", "b")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("a folder that was made: %v, %v", fi.Mode(), err)
	}
	// What runs can be replaced, if not written to.
	body, kind := form(t, "files[0].path", "running.new", "files[0].file", "1")
	c.do("POST", url+"/files/bulk-upload", body, kind)
	// Nothing is moved over a file that is there.
	if a := c.do("POST", url+"/files/move?source=running.new&destination=running", nil); a.status != 409 ||
		a.body != "" {
		t.Errorf("move: %d %s", a.status, a.body)
	}
	if a := c.run(url, "mv running.new running"); a.json["exitCode"] != 0. {
		t.Errorf("mv: %d %s", a.status, a.body)
	}
	if b, err := os.ReadFile(running); err != nil || string(b) != "1" {
		t.Errorf("got %.10q, %v", b, err)
	}
	body, kind = form(t, "file", "single")
	if a := c.do("POST", url+"/files/upload?path=single", body, kind); a.status != 200 {
		t.Errorf("upload: %d %s", a.status, a.body)
	}
	if b, err := os.ReadFile(filepath.Join(home, "single")); err != nil || string(b) != "single" {
		t.Errorf("got %q, %v", b, err)
	}

	// It is not atomic: what came before the client broke off is in its place.
	from, to := io.Pipe()
	body, kind = form(t, "files[0].path", "half", "files[0].file", strings.Repeat("x", 1<<20))
	done := make(chan error)
	go func() {
		a, err := c.try("POST", url+"/files/bulk-upload", from, kind)
		if err == nil {
			t.Errorf("got %d %s", a.status, a.body)
		}
		done <- err
	}()
	if _, err := io.CopyN(to, body, 1<<20); err != nil {
		t.Error(err)
	}
	await(
		t,
		"there is a half",
		func() bool { fi, err := os.Stat(filepath.Join(home, "half")); return err == nil && fi.Size() > 0 },
	)
	_ = to.CloseWithError(io.ErrUnexpectedEOF)
	<-done
}

func TestFiles(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	c.run(url, "echo hi >f; mkdir -p d/e; touch d/e/g; chmod 750 d")
	for _, tt := range []struct {
		request string
		status  int
		want    string // of the answer, which is empty where that is
	}{
		{"GET /files/info?path=f", 200, `"name":"f"`},
		{"GET /files/info?path=f", 200, `"mode":"-rw-r--r--"`},
		{"GET /files/info?path=d", 200, `"permissions":"0750"`},
		{"GET /files/info?path=none", 404, ""},
		{"GET /files/info?path=~", 404, ""},
		{"GET /files/info", 400, ""},
		{"GET /files/download?path=f", 200, "hi\n"},
		{"GET /files/download?path=none", 404, ""},
		{"GET /files/download?path=d", 400, ""},
		{"GET /files?path=d", 200, `"name":"e"`},
		{"GET /files?path=none", 404, ""},
		{"POST /files/folder?path=x/y&mode=0777", 201, ""},
		{"GET /files/info?path=x/y", 200, `"permissions":"0755"`},
		{"POST /files/folder?path=x/y&mode=0700", 201, ""},
		{"GET /files/info?path=x/y", 200, `"permissions":"0755"`}, // as it was
		{"POST /files/folder?path=z&mode=rwx", 400, ""},
		{"POST /files/folder?path=/etc/none&mode=0755", 403, ""},
		{"POST /files/permissions?path=f&mode=0755", 200, ""},
		{"POST /files/permissions?path=x/y&mode=700", 200, ""},
		{"GET /files/info?path=x/y", 200, `"permissions":"0700"`},
		{"POST /files/permissions?path=none&mode=0755", 404, ""},
		{"POST /files/permissions?path=f&mode=x", 400, ""},
		{"POST /files/move?source=f&destination=moved", 200, ""},
		{"POST /files/move?source=f&destination=moved", 404, ""},
		{"DELETE /files?path=d", 400, ""},
		{"DELETE /files?path=d&recursive=true", 204, ""},
		{"DELETE /files?path=d&recursive=true", 404, ""},
		{"DELETE /files?path=moved", 204, ""},
		{"DELETE /files?path=../../../../../../etc/none", 403, ""},
		{"GET /files", 200, `"name":"x"`},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		if a := c.do(method, url+path, nil); a.status != tt.status || !strings.Contains(a.body, tt.want) ||
			tt.want == "" && a.body != "" {
			t.Errorf("%s: %d %q", tt.request, a.status, a.body)
		}
	}
	a := c.do("GET", url+"/files/info?path="+escape("x"), nil)
	for _, key := range []string{
		"group", "isDir", "modTime", "mode", "modifiedAt", "name", "owner", "permissions",
		"size",
	} {
		if _, ok := a.json[key]; !ok {
			t.Errorf("there is no %s in %s", key, a.body)
		}
	}
}

func escape(s string) string { return url.QueryEscape(s) }

func TestBulkDownload(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	c.run(url, "echo hi >f")
	a := c.do("POST", url+"/files/bulk-download", map[string]any{"paths": []string{"f", "none"}})
	_, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || a.status != 200 {
		t.Fatalf("got %d %s, %v", a.status, a.body, err)
	}
	got := map[string]string{}
	for m := multipart.NewReader(strings.NewReader(a.body), params["boundary"]); ; {
		p, err := m.NextPart()
		if err != nil {
			break
		}
		b, err := io.ReadAll(p)
		if err != nil {
			t.Error(err)
		}
		var e struct{ Code string }
		if json.Unmarshal(b, &e) == nil {
			b = []byte(e.Code)
		}
		got[p.FormName()+" "+p.FileName()] = string(b)
	}
	if want := map[string]string{"file f": "hi\n", "error none": "FILE_NOT_FOUND"}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if a := c.do("POST", url+"/files/bulk-download", `{"paths":[]}`); a.status != 400 {
		t.Errorf("got %d %s", a.status, a.body)
	}
}
