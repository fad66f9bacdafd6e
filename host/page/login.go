package page

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/access"
	houses "arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// mostBody bounds the body of a request, in bytes.
const mostBody = 256 << 10

// parseBody parses the body of a request into v, whose members are texts or numbers: JSON, or the form of a browser
// without a script.
func parseBody(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err == nil && isForm(r) {
		var fields url.Values
		fields, err = url.ParseQuery(string(b))
		members := map[string]string{}
		for name := range fields {
			members[name] = strings.ReplaceAll(fields.Get(name), "\r\n", "\n")
		}
		b = thread.Marshal(members)
	}
	if err != nil || len(b) > 0 && json.Unmarshal(b, v) != nil {
		return refuse(http.StatusBadRequest, "json", "want a JSON object of at most %d bytes", mostBody)
	}
	return nil
}

// isForm reports whether a browser without a script has posted a form.
func isForm(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/x-www-form-urlencoded"
}

// opener checks that a request has a token of the scope page:open.
func (p *page) opener(r *http.Request) error {
	kind, signed, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || signed == "" {
		return refuse(http.StatusUnauthorized, "no_token", "a bearer token is required")
	}
	g, err := p.tokens.Verify(strings.TrimSpace(signed))
	switch {
	case err != nil:
		return refuse(http.StatusUnauthorized, "invalid_token", "%v", err)
	case p.Doors != nil && g.House != "":
		return refuse(http.StatusForbidden, "wrong_house", "the page shows all houses, and the token is for one")
	case g.Stream != token.SubjectPage || !g.Allows(token.ScopePage):
		return refuse(http.StatusForbidden, "missing_scope", "the token lacks the scope %s", token.ScopePage)
	}
	return nil
}

// Link is a code of POST /login/codes and POST /share/codes. Its link is /login#CODE or /share#CODE.
type Link struct {
	Code      string `json:"code"`
	ExpiresAt string `json:"expiresAt"`
}

// loginCode makes a login code.
func (p *page) loginCode(w http.ResponseWriter, r *http.Request) error {
	if err := p.opener(r); err != nil {
		return err
	}
	var asked struct{ Thread string }
	if err := parseBody(w, r, &asked); err != nil {
		return err
	}
	if asked.Thread != "" {
		if _, err := p.stat(r.Context(), asked.Thread); err != nil {
			return err
		}
	}
	code, until, err := p.store.NewLogin(r.Context(), now(), asked.Thread)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusCreated, Link{code, thread.Stamp(until)})
	return nil
}

// loginPage is where the links of `arbe open` and of shares lead: its script trades the code.
func (p *page) loginPage(w http.ResponseWriter, r *http.Request) error {
	p.render(w, http.StatusOK, "login", loginPage{newFrame("Log in · arbe")})
	return nil
}

type loginPage struct{ frame }

// traded is the answer to a code.
type traded struct {
	To string `json:"to"` // where the browser goes now
}

// login trades a login code for a session, or a member's login token.
func (p *page) login(w http.ResponseWriter, r *http.Request) error {
	code, err := parseCode(w, r)
	if err != nil {
		return err
	}
	if p.Doors != nil && houses.IsLogin(code) {
		m, err := p.Doors.Member(r.Context(), code)
		if err != nil {
			return err
		}
		p.setCookie(w, r, access.NewMember(now(), m.Agent, m.Until))
		answerJSON(w, http.StatusOK, traded{pathOf("")})
		return nil
	}
	id, err := p.store.Login(r.Context(), now(), code)
	if err != nil {
		return err
	}
	p.setCookie(w, r, access.NewSession(now()))
	answerJSON(w, http.StatusOK, traded{pathOf(id)})
	return nil
}

// openShare trades the code of a share for a session.
func (p *page) openShare(w http.ResponseWriter, r *http.Request) error {
	code, err := parseCode(w, r)
	if err != nil {
		return err
	}
	s, err := p.store.ShareOf(r.Context(), now(), code)
	if err != nil {
		return err
	}
	p.setCookie(w, r, s.NewSession(now()))
	answerJSON(w, http.StatusOK, traded{pathOf(s.Thread)})
	return nil
}

func parseCode(w http.ResponseWriter, r *http.Request) (string, error) {
	var sent struct{ Code string }
	if err := parseBody(w, r, &sent); err != nil {
		return "", err
	}
	if sent.Code == "" || len(sent.Code) > houses.MaxToken {
		return "", access.ErrUnknown
	}
	return sent.Code, nil
}

// pathOf returns the path of a thread's page; that of the list for "".
func pathOf(id string) string {
	if id == "" {
		return "/"
	}
	return "/t/" + id
}

// loginState answers 204 to a browser that is logged in. A link from another site leads to the login page even then:
// the browser keeps the cookie to itself, and the login page asks here.
func (p *page) loginState(w http.ResponseWriter, r *http.Request) error {
	if _, err := p.viewer(w, r, ""); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// logout ends the browser's session, and with it all copies of its cookie.
func (p *page) logout(w http.ResponseWriter, r *http.Request) error {
	if s, err := p.session(r, ""); err == nil && s.Share == "" {
		if err := p.store.End(r.Context(), now(), s); err != nil {
			return err
		}
	}
	for _, secure := range []bool{false, true} {
		http.SetCookie(w, &http.Cookie{
			Name: cookieName(r, secure, ""), Path: "/", MaxAge: -1, HttpOnly: true, Secure: secure,
			SameSite: http.SameSiteStrictMode,
		})
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	return nil
}

// MostShareTTL is how long a share lasts at most.
const MostShareTTL = access.MostShareTTL

// shareRequest is the body of POST /share/codes.
type shareRequest struct {
	Thread     string `json:"thread"`
	TTLSeconds int64  `json:"ttlSeconds"` // 0 for access.ShareTTL
}

// share shares a thread.
func (p *page) share(w http.ResponseWriter, r *http.Request) error {
	if err := p.opener(r); err != nil {
		return err
	}
	var asked shareRequest
	if err := parseBody(w, r, &asked); err != nil {
		return err
	}
	return p.newShare(w, r, asked)
}

// shareHere shares a thread from its page, for the hours that the form has.
func (p *page) shareHere(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	if _, err := p.actor(w, r, id); err != nil {
		return err
	}
	var form struct{ Hours string }
	if err := parseBody(w, r, &form); err != nil {
		return err
	}
	hours, err := strconv.ParseUint(form.Hours, 10, 16)
	if err != nil || hours == 0 {
		return refuse(http.StatusBadRequest, "hours", "hours: want a number")
	}
	return p.newShare(w, r, shareRequest{id, int64(hours) * 3600})
}

// revokeHere revokes the shares of a thread from its page.
func (p *page) revokeHere(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	if _, err := p.actor(w, r, id); err != nil {
		return err
	}
	return p.endShares(w, r, id)
}

// endShares revokes the shares of a thread, and answers how many there were.
func (p *page) endShares(w http.ResponseWriter, r *http.Request, id string) error {
	n, err := p.store.Revoke(r.Context(), now(), id)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, map[string]any{"revoked": n})
	return nil
}

// newShare answers with the code of a new share.
func (p *page) newShare(w http.ResponseWriter, r *http.Request, asked shareRequest) error {
	ttl := time.Duration(asked.TTLSeconds) * time.Second
	switch {
	case asked.TTLSeconds < 0 || asked.TTLSeconds > int64(access.MostShareTTL/time.Second):
		return refuse(http.StatusBadRequest, "ttl", "ttlSeconds: want up to %d", access.MostShareTTL/time.Second)
	case ttl == 0:
		ttl = access.ShareTTL
	}
	if _, err := p.stat(r.Context(), asked.Thread); err != nil {
		return err
	}
	s, code, err := p.store.NewShare(r.Context(), now(), asked.Thread, ttl)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusCreated, Link{code, thread.Stamp(s.Until)})
	return nil
}

// Shared is a share in the answer of GET /share/codes.
type Shared struct {
	ID        string `json:"id"`
	MadeAt    string `json:"madeAt"`
	ExpiresAt string `json:"expiresAt"`
	Revoked   bool   `json:"revoked,omitempty"`
}

// shares lists the shares of a thread, without their codes.
func (p *page) shares(w http.ResponseWriter, r *http.Request) error {
	id, err := p.sharedThread(r)
	if err != nil {
		return err
	}
	all, err := p.store.Shares(r.Context(), id)
	if err != nil {
		return err
	}
	list := make([]Shared, 0, len(all))
	for _, s := range all {
		list = append(list, Shared{s.ID, thread.Stamp(s.Made), thread.Stamp(s.Until), s.Revoked})
	}
	answerJSON(w, http.StatusOK, map[string]any{"shares": list})
	return nil
}

// revoke revokes the shares of a thread.
func (p *page) revoke(w http.ResponseWriter, r *http.Request) error {
	id, err := p.sharedThread(r)
	if err != nil {
		return err
	}
	return p.endShares(w, r, id)
}

// sharedThread returns the thread in the query of a request that may list and revoke shares.
func (p *page) sharedThread(r *http.Request) (string, error) {
	if err := p.opener(r); err != nil {
		return "", err
	}
	id := r.URL.Query().Get("thread")
	if !thread.ValidThread(id) {
		return "", errNoThread
	}
	return id, nil
}

var errNoThread = refuse(http.StatusNotFound, "not_found", "There is no such thread.")
