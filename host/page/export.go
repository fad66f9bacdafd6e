package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of an exported file.
const (
	// The file is written in pieces, which wait for the results of their calls: an item is written once so many items,
	// or the entries of so many bytes, are behind it. A result that comes later is an item of its own.
	exportItems = 1000
	exportBytes = 16 << 20

	mostImage  = 4 << 20  // bytes of one image, decoded
	mostImages = 64 << 20 // of all
)

// Export writes a thread as one HTML file, which has everything in it: it runs no script, asks no server for anything,
// and has a Content-Security-Policy that allows its own style and its own images alone. NewExport writes the file's
// beginning, Add takes the thread's entries in their order, Close writes the end. Its memory does not grow with the
// thread. It is not safe for concurrent use.
type Export struct {
	Name  func(id string) string                 // of an author; "" where it is not known. nil for ids alone
	Other func(id string) (thread.Summary, bool) // another thread that items name, as it is now; nil for none

	w       io.Writer
	builder view.Builder
	list    view.List       // items that are not written yet
	has     map[string]bool // the ids in list

	// Of the entries that list has items of, by their ids.
	sizes  map[string]int      // bytes that they hold
	images map[string][]string // data: addresses; "" for an image that can't be shown
	size   int                 // sum of sizes

	embedded int  // bytes of images in the file
	ended    bool // there are no further entries
}

// beside returns what some items show beside their entries.
func (x *Export) beside(items []view.Item) beside {
	b := beside{names: names{}, others: others{}, closed: true}
	for _, i := range items {
		if bot := i.Author; x.Name != nil {
			b.names[bot] = x.Name(bot)
			if i.Notice != nil {
				b.names[i.Notice.Bot] = x.Name(i.Notice.Bot)
			}
		}
		for _, id := range []string{i.From, i.Call.Task()} {
			if x.Other == nil || !thread.ValidThread(id) {
				continue
			}
			if v, ok := x.Other(id); ok {
				b.others[id] = taskRow(v)
			}
		}
	}
	return b
}

// exportPage is the data of a file's beginning.
type exportPage struct {
	*row
	Made string
}

// NewExport begins a file with a thread of this summary, of which only the ID has to be set. harnesses are those whose
// lines may be on the thread.
func NewExport(w io.Writer, v thread.Summary, harnesses session.List, now time.Time) (*Export, error) {
	x := &Export{
		w: w, builder: view.Builder{Harnesses: harnesses}, has: map[string]bool{}, sizes: map[string]int{},
		images: map[string][]string{},
	}
	made := now.UTC().Format("2006-01-02 15:04 UTC")
	return x, templates.ExecuteTemplate(w, "export", exportPage{newRow(v, now), made})
}

// Add adds the thread's next entry.
func (x *Export) Add(e thread.Entry) error {
	changes := x.builder.Add(e)
	if len(changes) == 0 {
		return nil
	}
	for _, c := range changes {
		switch {
		case !c.Replaces:
			x.put(c.Item)
		case x.has[c.Item.ID]:
			x.list.Change(c)
		default:
			x.late(e, c.Item)
		}
	}
	x.embed(e)
	x.sizes[e.ID] += len(e.Payload)
	x.size += len(e.Payload)
	for len(x.list.Items) > exportItems || x.size > exportBytes && len(x.list.Items) > 0 {
		if err := x.write(max(1, len(x.list.Items)/2)); err != nil {
			return err
		}
	}
	return nil
}

func (x *Export) put(i view.Item) {
	x.has[i.ID] = true
	x.list.Change(view.Change{Item: i})
}

// late puts what an entry adds to an item that is written already: a call's result, or a verdict's second half.
func (x *Export) late(e thread.Entry, whole view.Item) {
	for _, i := range view.Items(e, x.builder.Harnesses) {
		result := i.Kind == view.KindResult && whole.Call != nil && whole.Call.Result != nil
		half := i.Kind == view.KindVerdict && whole.Verdict != nil && !whole.Verdict.Replaced
		if result || half {
			x.put(i)
		}
	}
}

// embed keeps the images of an entry.
func (x *Export) embed(e thread.Entry) {
	for kind, data := range view.EachImage(e) {
		address := ""
		if n := len(data); kind != "" && n <= mostImage && x.embedded+n <= mostImages {
			x.embedded += n
			address = "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)
		}
		x.images[e.ID] = append(x.images[e.ID], address)
		x.sizes[e.ID] += len(address)
		x.size += len(address)
	}
}

// write writes the first n items, and forgets what only they need.
func (x *Export) write(n int) error {
	all := x.list.Items
	if !x.ended || !x.builder.Runs {
		unmark(all[:n])
	}
	part := piece{Groups: grouped(all[:n], "", x.beside(all[:n]))}
	for _, g := range part.Groups {
		for i := range g.Items {
			g.Items[i].File = x
		}
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "piece", part); err != nil {
		return err
	}
	if _, err := x.w.Write(b.Bytes()); err != nil {
		return err
	}
	sizes, images := x.sizes, x.images
	x.list, x.size = view.List{}, 0
	x.has, x.sizes, x.images = map[string]bool{}, map[string]int{}, map[string][]string{}
	for _, i := range all[n:] {
		x.put(i)
		for _, id := range entriesOf(i) {
			if _, ok := x.sizes[id]; !ok && id != "" {
				x.sizes[id] = sizes[id]
				x.size += sizes[id]
			}
			if images[id] != nil {
				x.images[id] = images[id]
			}
		}
	}
	return nil
}

// entriesOf returns the ids of the entries that an item is made from.
func entriesOf(i view.Item) []string {
	if i.Call != nil && i.Call.Result != nil {
		return []string{i.Entry, i.Call.Result.Entry}
	}
	return []string{i.Entry}
}

// Close writes the rest of the file.
func (x *Export) Close() error {
	x.ended = true
	if len(x.list.Items) > 0 {
		if err := x.write(len(x.list.Items)); err != nil {
			return err
		}
	}
	return templates.ExecuteTemplate(x.w, "export-end", nil)
}

// Embedded returns the address of an image, for templates; "" for one that the file does not have.
func (x *Export) Embedded(i view.Image) template.URL {
	if all := x.images[i.Entry]; i.N < len(all) {
		return template.URL(all[i.N]) // made by embed, of a type that is checked
	}
	return ""
}

// Missing returns what stands in place of such an image.
func (x *Export) Missing(i view.Image) string {
	return fmt.Sprintf("an image of %s is not in this file: it is too large, or not of a type that is shown",
		view.Size(int64(i.Bytes)))
}

// exportStyle is the style of an exported file, as an element.
var exportStyle = template.HTML("<style>" + string(assets["file.css"].body) + "</style>") // it is in the program

// exportPolicy is the Content-Security-Policy of an exported file. Its style is allowed by its hash.
var exportPolicy = func() string {
	sum := sha256.Sum256(assets["file.css"].body)
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; img-src data:; base-uri 'none'; form-action 'none'"
}()
