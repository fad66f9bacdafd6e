package wire

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Exchange is a request and its whole answer.
type Exchange struct {
	Method string
	Target string // path and query, from the server's root
	Body   string
	Status int
	Header http.Header // of the answer
	Answer string
}

// path is a path of the description.
type path struct {
	template string
	pattern  *regexp.Regexp
	methods  map[string]any // operations by their methods, in lower case
}

// parameter is a part of a template that varies.
var parameter = regexp.MustCompile(`\\\{[a-z]+\\\}`)

// parsePaths reads the paths of a description.
func parsePaths(api map[string]any) (all []path, err error) {
	paths, _ := api["paths"].(map[string]any)
	for template, item := range paths {
		pattern := parameter.ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`)
		r, err := regexp.Compile("^" + pattern + "$")
		if err != nil {
			return nil, err
		}
		methods, _ := item.(map[string]any)
		all = append(all, path{template, r, methods})
	}
	if len(all) == 0 {
		err = errors.New("no paths")
	}
	return all, err
}

// node is a value of the description, and its address there.
type node struct {
	d   *documents
	at  string // a JSON pointer
	now any
}

// to follows keys, and references within the description.
func (n node) to(keys ...string) node {
	for _, key := range keys {
		m, _ := n.now.(map[string]any)
		n.at += "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
		n.now = m[key]
		m, _ = n.now.(map[string]any)
		if target, is := m["$ref"].(string); is && strings.HasPrefix(target, "#/components/") && key != "schema" {
			parts := strings.Split(strings.TrimPrefix(target, "#/"), "/")
			n = node{n.d, "", n.d.api}.to(parts...)
		}
	}
	return n
}

func (n node) members() map[string]any {
	m, _ := n.now.(map[string]any)
	return m
}

func (n node) text(key string) string {
	s, _ := n.members()[key].(string)
	return s
}

// schema returns the address of the schema below n; "" where there is none.
func (n node) schema() string {
	if _, has := n.members()["schema"]; !has {
		return ""
	}
	return base + apiFile + "#" + n.at + "/schema"
}

// CheckExchange returns in what an exchange differs from docs/openapi.yaml. A path that is not in it has to be answered
// with an error, and a method that is not in it with 405.
func CheckExchange(x Exchange) error {
	d, err := load()
	if err != nil {
		return err
	}
	if err := d.check(x); err != nil {
		return fmt.Errorf("%s %s, %d: %w\n%.1000s", x.Method, x.Target, x.Status, err, x.Answer)
	}
	return nil
}

func (d *documents) check(x Exchange) error {
	target, query, _ := strings.Cut(x.Target, "?")
	at := slices.IndexFunc(d.paths, func(p path) bool { return p.pattern.MatchString(target) })
	if at < 0 {
		if x.Status < 400 {
			return errors.New("the path is not described")
		}
		return nil
	}
	method := strings.ToLower(x.Method)
	if method == "head" {
		if x.Status == http.StatusMethodNotAllowed {
			return nil
		}
		method = "get"
	}
	operation := node{d, "", d.api}.to("paths", d.paths[at].template, method)
	if operation.now == nil {
		if x.Status != http.StatusMethodNotAllowed {
			return errors.New("the method is not described, and the status is not 405")
		}
		return nil
	}
	answer := operation.to("responses", strconv.Itoa(x.Status))
	if answer.now == nil {
		return errors.New("the status is not described")
	}
	if x.Status < 300 {
		if err := operation.asked(query, x.Body); err != nil {
			return err
		}
	}
	for name := range answer.to("headers").members() {
		if err := answer.to("headers", name).header(name, x.Header); err != nil {
			return err
		}
	}
	if x.Method == http.MethodHead {
		return nil
	}
	return answer.body(x.Header.Get("Content-Type"), x.Answer)
}

// asked checks the query and the body of a request that was served.
func (n node) asked(query, body string) error {
	given, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	known := map[string]node{}
	list, _ := n.members()["parameters"].([]any)
	for i, v := range list {
		p := node{n.d, n.at + "/parameters/" + strconv.Itoa(i), v}
		if target, is := p.members()["$ref"].(string); is {
			p = node{n.d, "", n.d.api}.to(strings.Split(strings.TrimPrefix(target, "#/"), "/")...)
		}
		if p.text("in") == "query" {
			known[p.text("name")] = p
		}
	}
	for name, values := range given {
		p, is := known[name]
		if !is {
			return fmt.Errorf("the parameter %s is not described", name)
		}
		for _, v := range values {
			if err := n.d.validateText(p.schema(), v); err != nil {
				return fmt.Errorf("%s=%s: %w", name, v, err)
			}
		}
	}
	request := n.to("requestBody", "content", "application/json")
	if address := request.schema(); address != "" && body != "" {
		return n.d.validate(address, []byte(body))
	}
	return nil
}

// header checks one header of an answer.
func (n node) header(name string, h http.Header) error {
	values := h.Values(name)
	if len(values) == 0 {
		if required, _ := n.members()["required"].(bool); required {
			return fmt.Errorf("no %s", name)
		}
		return nil
	}
	if err := n.d.validateText(n.schema(), values[0]); err != nil {
		return fmt.Errorf("%s: %s: %w", name, values[0], err)
	}
	return nil
}

// validateText checks a text, or the number that it is.
func (d *documents) validateText(address, text string) error {
	s, err := d.compile(address)
	if err != nil {
		return err
	}
	if number, err := strconv.ParseInt(text, 10, 32); err == nil && s.Validate(number) == nil {
		return nil
	}
	return s.Validate(text)
}

// body checks an answer's body.
func (n node) body(contentType, body string) error {
	content := n.to("content")
	if content.now == nil {
		if body != "" {
			return errors.New("a body is not described")
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", contentType, err)
	}
	media := content.to(kind)
	if media.now == nil {
		return fmt.Errorf("the content type %s is not described", kind)
	}
	address := media.schema()
	switch {
	case address == "":
		return nil
	case kind == "application/x-ndjson":
		for line := range strings.Lines(body) {
			if err := n.d.validate(address, []byte(line)); err != nil {
				return fmt.Errorf("%.200s: %w", line, err)
			}
		}
		return nil
	case kind == "text/event-stream":
		return n.d.events(address, body)
	case strings.HasPrefix(kind, "text/"):
		return n.d.validateText(address, body)
	}
	return n.d.validate(address, []byte(body))
}

// events checks server-sent events. The schema is that of {event, data} of each.
func (d *documents) events(address, body string) error {
	s, err := d.compile(address)
	if err != nil {
		return err
	}
	for block := range strings.SplitSeq(body, "\n\n") {
		event, data := "message", ""
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				event = value
			case "data":
				data += value + "\n"
			}
		}
		if data == "" {
			continue // a comment, or the end
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(data)))
		if err == nil {
			err = s.Validate(map[string]any{"event": event, "data": v})
		}
		if err != nil {
			return fmt.Errorf("event %s: %w", event, err)
		}
	}
	return nil
}
