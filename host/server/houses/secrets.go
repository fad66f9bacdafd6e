package houses

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a secret.
const (
	secretBody  = 512 << 10 // bytes of the body: escapes take six for one
	secretValue = 64 << 10  // bytes of the value
)

// secretAnswer is the JSON of a secret. It never has the value.
type secretAnswer struct {
	Name      string `json:"name"`
	House     string `json:"house"`
	CreatedAt string `json:"createdAt"`
}

// listSecrets serves the names of a house's secrets.
func (a *API) listSecrets(w http.ResponseWriter, r *http.Request, m member.Member) error {
	house, err := houseOf(m, r.URL.Query().Get("house"))
	if err != nil {
		return err
	}
	all, err := a.Rows.As(m.Agent).Secrets(r.Context(), house)
	if err != nil {
		return err
	}
	answers := make([]secretAnswer, len(all))
	for i, v := range all {
		answers[i] = secretAnswer{v.Name, house, thread.Stamp(v.CreatedAt)}
	}
	a.AnswerJSON(r.Context(), w, map[string]any{"secrets": answers})
	return nil
}

// secretOf returns the house and the name of a request about one secret.
func secretOf(r *http.Request, m member.Member) (house, name string, err error) {
	if house, err = houseOf(m, r.URL.Query().Get("house")); err != nil {
		return "", "", err
	}
	if name = r.PathValue("name"); !secretName.MatchString(name) {
		return "", "", request.Refuse(http.StatusBadRequest, "value", "want the name of an environment variable")
	}
	return house, name, nil
}

// putSecret makes a secret, or replaces its value. No answer, log or error has the value.
func (a *API) putSecret(w http.ResponseWriter, r *http.Request, m member.Member) error {
	house, name, err := secretOf(r, m)
	if err != nil {
		return err
	}
	var body struct {
		Value *string `json:"value"`
	}
	if err := a.readRow(w, r, m, secretBody, &body, true); err != nil {
		return err
	}
	if v := body.Value; v == nil || *v == "" || len(*v) > secretValue || strings.ContainsRune(*v, 0) ||
		strings.ContainsRune(*v, utf8.RuneError) { // what is no UTF-8 is decoded as that rune
		return request.Refuse(http.StatusBadRequest, "value", "value: want 1 to %d bytes of UTF-8, without NUL",
			secretValue)
	}
	v, err := a.Rows.As(m.Agent).PutSecret(r.Context(), house, name, []byte(*body.Value))
	if err != nil {
		return err
	}
	a.AnswerJSON(r.Context(), w, secretAnswer{v.Name, house, thread.Stamp(v.CreatedAt)})
	return nil
}

// deleteSecret deletes a secret.
func (a *API) deleteSecret(w http.ResponseWriter, r *http.Request, m member.Member) error {
	house, name, err := secretOf(r, m)
	if err != nil {
		return err
	}
	if err := a.Rows.As(m.Agent).DeleteSecret(r.Context(), house, name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
