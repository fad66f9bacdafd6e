package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Labels of our own: the kind of box that Daytona's SDK wants, and the folder that is worked in, for who opens the box later.
const (
	labelLanguage = "code-toolbox-language"
	labelWork     = "arbe.work"
)

// order is the body of a request for a box.
type order struct {
	Name       string            `json:"name"`
	Snapshot   string            `json:"snapshot,omitempty"`
	CPU        int               `json:"cpu,omitempty"`    // cores; with a snapshot all three are refused
	Memory     int               `json:"memory,omitempty"` // GiB
	Disk       int               `json:"disk,omitempty"`   // GiB
	Target     string            `json:"target,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Labels     map[string]string `json:"labels"`
	AutoStop   int               `json:"autoStopInterval"`             // minutes; left out it would be 15
	AutoDelete *int              `json:"autoDeleteInterval,omitempty"` // minutes after the stop; 0 is at once
}

// repository is what Options.Repo names.
type repository struct{ owner, name string }

func (p *Daytona) Create(ctx context.Context, o Options) (Sandbox, error) {
	if err := checkEnv(o.Env); err != nil {
		return nil, err
	}
	var repo repository
	if o.Repo != "" {
		if isPath(o.Repo) {
			return nil, errors.New("Daytona sandbox requires a GitHub repo URL (e.g. org/repo), not a local path") //lint:ignore ST1005 the name has a capital
		}
		var err error
		if repo.owner, repo.name, err = ParseRepo(o.Repo); err != nil {
			return nil, err
		}
	}
	if o.Branch != "" {
		if err := checkBranch(o.Branch); err != nil {
			return nil, err
		}
	}
	q := newOrder(p.conf, o, repo)
	if err := checkResources(o.Resources, q.Snapshot); err != nil {
		return nil, err
	}
	begin, err := o.beginBranch(ctx, p.address(repo))
	if err != nil {
		return nil, err
	}
	o.step("creating the box")
	i, err := p.order(ctx, q)
	if err != nil {
		return nil, err
	}
	b, err := p.furnish(ctx, i, o, repo, begin)
	if err != nil {
		return nil, errors.Join(err, p.discard(ctx, i.ID))
	}
	return b, nil
}

// address is the repository's for git; "" for none.
func (p *Daytona) address(repo repository) string {
	if repo.name == "" {
		return ""
	}
	return p.conf.GitHub + "/" + repo.owner + "/" + repo.name + ".git"
}

// newOrder is the request for a box. The name is nobody else's: by it the box is found whose id we were never told.
func newOrder(c Config, o Options, repo repository) order {
	labels := boxLabels(o)
	maps.Copy(labels, map[string]string{labelLanguage: "typescript", labelWork: workName(repo)})
	q := order{
		Name: "arbe-" + uuid.NewString(), Snapshot: c.Snapshot, Target: c.Target, Env: o.Env, Labels: labels,
		AutoStop: int((o.AutoStop + time.Minute - 1) / time.Minute),
		CPU:      o.Resources.CPU, Memory: o.Resources.Memory, Disk: o.Resources.Disk,
	}
	if o.Snapshot != "" {
		q.Snapshot = o.Snapshot
	}
	if o.Target != "" {
		q.Target = o.Target
	}
	if o.Ephemeral {
		q.AutoDelete = new(int)
	}
	return q
}

// workName is the name of the folder that is worked in.
func workName(repo repository) string {
	if repo.name == "" {
		return "work"
	}
	return repo.name
}

// order asks for a box. Where the answer is lost the box may be there all the same. It is looked for by its name, which unlike the list is never behind, and
// taken; where Daytona says that it could not be started, or nobody wants it any more, it is deleted.
func (p *Daytona) order(ctx context.Context, q order) (info, error) {
	var i info
	// Daytona itself waits for half a minute before it answers.
	err := p.do(ctx, request{
		doing: "create a box", method: http.MethodPost, url: p.conf.URL + "/sandbox", body: q, into: &i, once: true, attempt: 2 * time.Minute,
	})
	if err == nil && boxID.MatchString(i.ID) {
		return i, nil
	}
	if err == nil {
		err = errors.New("daytona: create a box: the answer names no box")
	}
	var refused *apiError
	looks := 12 // some ten seconds: a request that we have given up may still be on its way
	if errors.As(err, &refused) && refused.status/100 == 4 && refused.status != http.StatusRequestTimeout {
		if refused.status != http.StatusBadRequest {
			return info{}, err
		}
		looks = 1 // it is there or not
	}
	life := context.WithoutCancel(ctx)
	found, lerr := p.lookFor(life, q.Name, looks)
	switch {
	case lerr != nil:
		return info{}, errors.Join(err, lerr)
	case found.ID == "":
		return info{}, err
	case answered(err, http.StatusBadRequest), ctx.Err() != nil:
		return info{}, errors.Join(err, p.discard(ctx, found.ID))
	}
	return found, nil
}

// lookFor looks for a box by its name; there is no id where it is not found. A 404 that is not about the box is an
// error if it stays.
func (p *Daytona) lookFor(ctx context.Context, name string, looks int) (info, error) {
	for n, wait := 1, p.pace; ; n, wait = n+1, min(wait*2, 10*p.pace) {
		i, err := p.get(ctx, name)
		if !answered(err, http.StatusNotFound) {
			return i, err
		}
		if n >= looks {
			if notFound(err, name) {
				err = nil
			}
			return info{}, err
		}
		if err := sleep(ctx, wait); err != nil {
			return info{}, err
		}
	}
}

// discard deletes a box that nobody will use. The order to stop is no reason to leave it.
func (p *Daytona) discard(ctx context.Context, id string) error {
	return p.destroy(context.WithoutCancel(ctx), id)
}

// box is the box i, which is started.
func (p *Daytona) box(ctx context.Context, i info) (*daytonaBox, error) {
	b, err := p.toolboxOf(ctx, i)
	if err != nil {
		return nil, err
	}
	var home struct{ Dir string }
	if err := b.call(ctx, request{doing: "find the home folder", method: http.MethodGet, url: "/user-home-dir", into: &home}); err != nil {
		return nil, err
	}
	if !path.IsAbs(home.Dir) {
		return nil, fmt.Errorf("daytona: find the home folder: %q is none", home.Dir)
	}
	b.home = path.Clean(home.Dir)
	name := i.Labels[labelWork]
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		name = workName(repository{})
	}
	b.work = path.Join(b.home, "workspace", name)
	return b, nil
}

// furnish makes a new box ready for work.
func (p *Daytona) furnish(ctx context.Context, i info, o Options, repo repository, begin Branch) (*daytonaBox, error) {
	o.step("starting the box " + i.ID)
	i, err := p.started(ctx, i)
	if err != nil {
		return nil, err
	}
	b, err := p.box(ctx, i)
	if err != nil {
		return nil, err
	}
	if o.Repo == "" {
		return b, b.folder(ctx, b.work, 0o755)
	}
	o.step("cloning " + repo.owner + "/" + repo.name)
	b.branch = begin
	return b, b.clone(ctx, p.address(repo), begin, o.Token)
}
