package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"path"

	"arbe.0sk.ar/runner/host/page/markup"
	"arbe.0sk.ar/runner/host/view"
)

//go:embed html assets
var files embed.FS

// templates are the pages, by their names.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"asset": assetPath, "visible": view.Visible, "markdown": markup.Markdown, "written": markup.Written,
	"numbered":    numbered,
	"exportStyle": func() template.HTML { return exportStyle }, "exportPolicy": func() string { return exportPolicy },
}).ParseFS(files, "html/*.html"))

// frame has the data of every page.
type frame struct {
	Title string
	Now   int64 // the server's time, ms since 1970
}

func newFrame(title string) frame { return frame{title, now().UnixMilli()} }

// render answers with a page.
func (p *page) render(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		p.Logger.Error("render page", "page", name, "error", err)
		status = http.StatusInternalServerError
		b.Reset()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

// problemPage is the data of a refusal.
type problemPage struct {
	frame
	Message string
	Login   bool   // a login helps
	Unsent  string // what the browser posted without a script, where it was refused
}

// asset is an embedded file that browsers keep.
type asset struct {
	hash, kind string
	body       []byte
}

// assets are the embedded files by their names. The page has one script and one style, which are several files here.
var assets = readAssets()

// kinds are the content types of embedded files.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// The parts of the page's script, of its style, and of the style of an exported file, in their order.
var (
	scriptParts = []string{
		"script/base.js", "script/clock.js", "feed.js", "script/follow.js", "script/list.js", "script/find.js",
		"script/thread.js", "script/main.js",
	}
	styleParts = []string{"style/base.css", "style/list.css", "style/room.css", "style/items.css"}
	fileParts  = []string{"style/base.css", "style/items.css"}
)

func readAssets() map[string]asset {
	all := map[string]asset{}
	for name, parts := range map[string][]string{
		"page.js": scriptParts, "page.css": styleParts, "file.css": fileParts, "feed.js": {"feed.js"},
		"icon.svg": {"icon.svg"},
	} {
		var whole []byte
		for _, part := range parts {
			b, err := files.ReadFile(path.Join("assets", part))
			if err != nil {
				panic(err) // they are in the program
			}
			whole = append(whole, b...)
		}
		sum := sha256.Sum256(whole)
		all[name] = asset{hex.EncodeToString(sum[:8]), kinds[path.Ext(name)], whole}
	}
	return all
}

// assetPath returns the path of an embedded file.
func assetPath(name string) string { return "/assets/" + assets[name].hash + "/" + name }

// asset serves an embedded file.
func (p *page) asset(w http.ResponseWriter, r *http.Request) error {
	a, ok := assets[r.PathValue("name")]
	if !ok || a.hash != r.PathValue("hash") {
		return refuse(http.StatusNotFound, "not_found", "There is no such file.")
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.body) // the client may be gone
	return nil
}
