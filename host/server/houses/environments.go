package houses

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/thread"
)

// mostBindings bounds the secrets that an environment injects.
const mostBindings = 100

// environmentBody is the body of a request that makes, replaces or changes an environment. What is nil stays.
type environmentBody struct {
	House    string          `json:"house"`
	Name     *string         `json:"name"`
	Runtime  *string         `json:"runtime"`
	Config   json.RawMessage `json:"config"`
	Bindings *[]bindingBody  `json:"secretBindings"`
	Archived *bool           `json:"archived"`
}

// bindingBody names a secret; without required it is.
type bindingBody struct {
	Name     string `json:"name"`
	Required *bool  `json:"required"`
}

// environmentAnswer is the JSON of an environment.
type environmentAnswer struct {
	ID         string          `json:"id"`
	House      string          `json:"house"`
	Name       string          `json:"name"`
	Runtime    string          `json:"runtime"`
	Config     json.RawMessage `json:"config,omitempty"` // not in a list
	Bindings   []rows.Binding  `json:"secretBindings"`
	CreatedAt  string          `json:"createdAt"`
	ArchivedAt string          `json:"archivedAt,omitempty"`
}

func answerOf(e rows.Environment) environmentAnswer {
	a := environmentAnswer{
		ID: e.ID, House: e.House, Name: e.Name, Runtime: e.Runtime, Config: e.Config, Bindings: e.Bindings,
		CreatedAt: thread.Stamp(e.CreatedAt),
	}
	if a.Bindings == nil {
		a.Bindings = []rows.Binding{}
	}
	if e.ArchivedAt != nil {
		a.ArchivedAt = thread.Stamp(*e.ArchivedAt)
	}
	return a
}

// listEnvironments serves the environments of a house.
func (a *API) listEnvironments(w http.ResponseWriter, r *http.Request, m member.Member) error {
	house, err := houseOf(m, r.URL.Query().Get("house"))
	if err != nil {
		return err
	}
	all, err := a.Rows.As(m.Agent).Environments(r.Context(), house)
	if err != nil {
		return err
	}
	answers := make([]environmentAnswer, len(all))
	for i, e := range all {
		answers[i] = answerOf(e)
	}
	a.AnswerJSON(r.Context(), w, map[string]any{"environments": answers})
	return nil
}

// environment serves one environment.
func (a *API) environment(w http.ResponseWriter, r *http.Request, m member.Member) error {
	e, err := a.Rows.As(m.Agent).Environment(r.Context(), r.PathValue("id"))
	if err == nil {
		request.WriteJSON(w, http.StatusOK, answerOf(e))
	}
	return err
}

// createEnvironment makes an environment.
func (a *API) createEnvironment(w http.ResponseWriter, r *http.Request, m member.Member) error {
	var body environmentBody
	if err := a.readRow(w, r, m, rowBody, &body, false); err != nil {
		return err
	}
	house, err := houseOf(m, body.House)
	if err != nil {
		return err
	}
	if body.Archived != nil {
		return request.Refuse(http.StatusBadRequest, "value", "archived: a new environment is in use")
	}
	var recipe rows.Recipe
	if err := a.apply(body, &recipe); err != nil {
		return err
	}
	e, err := a.Rows.As(m.Agent).CreateEnvironment(r.Context(), house, recipe)
	if err == nil {
		w.Header().Set("Location", EnvironmentsPath+"/"+e.ID)
		request.WriteJSON(w, http.StatusCreated, answerOf(e))
	}
	return err
}

// replaceEnvironment replaces an environment's recipe: what the body lacks gets its default.
func (a *API) replaceEnvironment(w http.ResponseWriter, r *http.Request, m member.Member) error {
	return a.editEnvironment(w, r, m, func(body environmentBody, recipe *rows.Recipe) error {
		if body.Archived != nil {
			return request.Refuse(http.StatusBadRequest, "value", "archived: want PATCH or DELETE")
		}
		*recipe = rows.Recipe{}
		return a.apply(body, recipe)
	})
}

// changeEnvironment sets the body's fields in an environment's recipe. It archives one, or takes it into use again.
func (a *API) changeEnvironment(w http.ResponseWriter, r *http.Request, m member.Member) error {
	return a.editEnvironment(w, r, m, a.apply)
}

// editEnvironment changes an environment.
func (a *API) editEnvironment(
	w http.ResponseWriter, r *http.Request, m member.Member, edit func(environmentBody, *rows.Recipe) error,
) error {
	id := r.PathValue("id")
	was, err := a.Rows.As(m.Agent).Environment(r.Context(), id)
	if err != nil {
		return err
	}
	var body environmentBody
	if err := a.readRow(w, r, m, rowBody, &body, false); err != nil {
		return err
	}
	if body.House != "" && body.House != was.House {
		return request.Refuse(http.StatusBadRequest, "value", "house: an environment stays in its house")
	}
	change := rows.EnvironmentChange{Archived: body.Archived}
	if body.Archived == nil || body.Name != nil || body.Runtime != nil || body.Config != nil || body.Bindings != nil {
		change.Recipe = func(recipe *rows.Recipe) error { return edit(body, recipe) }
	}
	e, err := a.Rows.As(m.Agent).ChangeEnvironment(r.Context(), id, change)
	if err == nil {
		request.WriteJSON(w, http.StatusOK, answerOf(e))
	}
	return err
}

// deleteEnvironment deletes an environment, 204, or archives one that is named by a thread or a sandbox, 200.
func (a *API) deleteEnvironment(w http.ResponseWriter, r *http.Request, m member.Member) error {
	id := r.PathValue("id")
	archived, err := a.Rows.As(m.Agent).RemoveEnvironment(r.Context(), id)
	switch {
	case err != nil:
		return err
	case !archived:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	e, err := a.Rows.As(m.Agent).Environment(r.Context(), id)
	if err == nil {
		request.WriteJSON(w, http.StatusOK, answerOf(e))
	}
	return err
}

// Forms of names.
var (
	runtimeName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	secretName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,199}$`)
)

// apply puts what a body has into a recipe, and checks the whole.
func (a *API) apply(body environmentBody, recipe *rows.Recipe) error {
	if body.Name != nil {
		recipe.Name = *body.Name
	}
	if body.Runtime != nil {
		recipe.Runtime = *body.Runtime
	}
	if body.Config != nil {
		recipe.Config = body.Config
	}
	if body.Bindings != nil {
		recipe.Bindings = nil
		for _, b := range *body.Bindings {
			required := b.Required == nil || *b.Required
			recipe.Bindings = append(recipe.Bindings, rows.Binding{Name: b.Name, Required: required})
		}
	}
	*recipe = recipe.Settled()
	badBinding := func(b rows.Binding) bool { return !secretName.MatchString(b.Name) }
	switch {
	case recipe.Name == "":
		return request.Refuse(http.StatusBadRequest, "value", "name: an environment has one")
	case !runtimeName.MatchString(recipe.Runtime):
		return request.Refuse(http.StatusBadRequest, "value",
			"runtime: want the name of a provider of boxes")
	case len(recipe.Bindings) > mostBindings || slices.ContainsFunc(recipe.Bindings, badBinding):
		return request.Refuse(http.StatusBadRequest, "value",
			"secretBindings: want at most %d, each with the name of an environment variable", mostBindings)
	}
	if err := errors.Join(checkName(recipe.Name), checkConfig(recipe.Config)); err != nil {
		return err
	}
	if a.CheckRecipe == nil {
		return nil
	}
	if err := a.CheckRecipe(recipe); err != nil {
		return request.Refuse(http.StatusBadRequest, "value", "%v", err)
	}
	return nil
}
