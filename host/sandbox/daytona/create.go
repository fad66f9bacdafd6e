package daytona

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/pause"
)

// Labels of Daytona boxes: the kind of box, which Daytona's SDK needs, and the name of the working directory, for Open.
const (
	labelLanguage = "code-toolbox-language"
	labelWork     = "arbe.work"
)

// order is the body of a request for a box.
type order struct {
	Name       string            `json:"name"`
	Snapshot   string            `json:"snapshot,omitempty"`
	Build      *build            `json:"buildInfo,omitempty"` // with a snapshot it is refused
	Volumes    []mount           `json:"volumes,omitempty"`
	CPU        int               `json:"cpu,omitempty"`    // cores; without a build all three are refused
	Memory     int               `json:"memory,omitempty"` // GiB
	Disk       int               `json:"disk,omitempty"`   // GiB
	Target     string            `json:"target,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Labels     map[string]string `json:"labels"`
	AutoStop   int               `json:"autoStopInterval"`             // minutes; without it Daytona uses 15
	AutoDelete *int              `json:"autoDeleteInterval,omitempty"` // minutes after the stop; 0 is at once
}

// build makes Daytona build the box's image: what its SDKs send for the name of an image.
type build struct {
	Dockerfile string `json:"dockerfileContent"`
}

// mount is a volume of a box.
type mount struct {
	Volume string `json:"volumeId"`
	Path   string `json:"mountPath"`
}

// imageName matches what may stand in a Dockerfile's FROM.
var imageName = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._/:@-]*\z`)

// repository is the repository that Options.Repo names.
type repository struct{ owner, name, address string }

// Check returns an error for options that no box at Daytona can have. Create refuses them, too.
func (p *Provider) Check(o sandbox.Options) error {
	_, err := p.check(o)
	return err
}

// check is Check, and returns the repository.
func (p *Provider) check(o sandbox.Options) (repo repository, err error) {
	if err := Kind().Refuse(o); err != nil {
		return repo, err
	}
	if err := sandbox.CheckEnv(o.Env); err != nil {
		return repo, err
	}
	server := cmp.Or(o.GitHub, p.conf.GitHub)
	if o.Repo != "" {
		if sandbox.IsPath(o.Repo) {
			//lint:ignore ST1005 it begins with a name
			return repo, errors.New("Daytona sandbox requires a GitHub repo URL (e.g. org/repo), not a local path")
		}
		if repo.owner, repo.name, err = sandbox.ParseRepo(o.Repo, server); err != nil {
			return repo, err
		}
		repo.address = sandbox.RepoAddress(server, repo.owner, repo.name)
	}
	if err := sandbox.CheckBranch(o.Branch); err != nil {
		return repo, err
	}
	switch {
	case o.Image != "" && o.Snapshot != "":
		return repo, fmt.Errorf("the image %s and the snapshot %s exclude each other", o.Image, o.Snapshot)
	case o.Image != "" && !imageName.MatchString(o.Image):
		return repo, fmt.Errorf("%q is not the name of an image", o.Image)
	}
	_, err = o.CheckWork()
	return repo, err
}

func (p *Provider) Create(ctx context.Context, o sandbox.Options) (sandbox.Sandbox, error) {
	repo, err := p.check(o)
	if err != nil {
		return nil, err
	}
	q := newOrder(p.conf, o, repo)
	if q.Volumes, err = p.mounts(ctx, o.Volumes); err != nil {
		return nil, err
	}
	r := sandbox.Repository{Work: o.Branch}
	if err := kit.Begin(ctx, &r, repo.address, o.Token); err != nil {
		return nil, err
	}
	o.Step("creating the box")
	if q.Snapshot == "" && q.Build == nil && !p.noMedium.Load() {
		q.Snapshot = Medium
	}
	i, err := p.order(ctx, q)
	if q.Snapshot == Medium && o.Snapshot == "" && p.conf.Snapshot == "" && lacksSnapshot(err) {
		p.noMedium.Store(true)
		o.Step("Daytona has no snapshot " + Medium + ": creating a box of its default size")
		q.Snapshot, q.Name = "", boxName()
		i, err = p.order(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	b, err := p.setUp(ctx, i, o, repo, r)
	if err != nil {
		return nil, errors.Join(err, p.discard(ctx, i.ID))
	}
	return b, nil
}

// boxName returns a new name for a box.
func boxName() string { return "arbe-" + uuid.NewString() }

// lacksSnapshot reports whether a box was refused because there is no such snapshot. The answer has no code: of a
// request that names a snapshot and is valid, other refusals are about limits.
func lacksSnapshot(err error) bool {
	e, is := errors.AsType[*apiError](err)
	return is && e.status == http.StatusBadRequest && strings.HasPrefix(e.message, "Snapshot ")
}

// newOrder returns the request for a box. Its name is unique: it finds the box if the answer with the id is lost.
func newOrder(c Config, o sandbox.Options, repo repository) order {
	labels := o.AllLabels()
	work := cmp.Or(o.Work, repo.name, sandbox.WorkFolder)
	maps.Copy(labels, map[string]string{labelLanguage: "typescript", labelWork: work})
	q := order{
		Name: boxName(), Snapshot: cmp.Or(o.Snapshot, c.Snapshot), Target: cmp.Or(o.Target, c.Target), Env: o.Env,
		Labels:   labels,
		AutoStop: wholeMinutes(o.AutoStop),
		CPU:      o.Resources.CPU, Memory: o.Resources.Memory, Disk: o.Resources.Disk,
	}
	if o.Image != "" {
		q.Snapshot, q.Build = "", &build{"FROM " + o.Image + "\n"}
	}
	if o.Ephemeral {
		q.AutoDelete = new(int)
	}
	return q
}

// order requests a box. If the answer is lost, the box may exist: order then finds it by its name, which unlike the
// list is never out of date, and returns it. If Daytona answers that the box could not be started, or ctx has ended,
// order deletes the box.
func (p *Provider) order(ctx context.Context, q order) (info, error) {
	var i info
	// Daytona waits for up to half a minute before it answers.
	err := p.do(ctx, request{
		doing: "create a box", method: http.MethodPost, url: p.conf.URL + "/sandbox", body: q, into: &i,
		once: true, attempt: 2 * time.Minute,
	})
	if err == nil && boxID.MatchString(i.ID) {
		return i, nil
	}
	if err == nil {
		err = errors.New("daytona: create a box: the answer names no box")
	}
	looks := 12 // about ten seconds: a request that was abandoned may still arrive
	refused, is := errors.AsType[*apiError](err)
	if is && refused.status/100 == 4 && refused.status != http.StatusRequestTimeout {
		if refused.status != http.StatusBadRequest {
			return info{}, err
		}
		looks = 1 // the request is done: the box exists or not
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

// lookFor looks for a box by its name; without an ID it was not found. A persistent 404 that is not about the box is an
// error.
func (p *Provider) lookFor(ctx context.Context, name string, looks int) (info, error) {
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
		if !pause.For(ctx, wait) {
			return info{}, context.Cause(ctx)
		}
	}
}

// discard deletes a box that will not be used, even if ctx has ended.
func (p *Provider) discard(ctx context.Context, id string) error {
	return p.Destroy(context.WithoutCancel(ctx), id)
}

// box returns the box i, which must be started.
func (p *Provider) box(ctx context.Context, i info) (*box, error) {
	b, err := p.toolboxOf(ctx, i)
	if err != nil {
		return nil, err
	}
	var home struct{ Dir string }
	if err := b.call(ctx, request{
		doing: "find the home folder", method: http.MethodGet, url: "/user-home-dir", into: &home,
	}); err != nil {
		return nil, err
	}
	if !path.IsAbs(home.Dir) {
		return nil, fmt.Errorf("daytona: find the home folder: %q is no absolute path", home.Dir)
	}
	b.home = path.Clean(home.Dir)
	work := i.Labels[labelWork]
	if b.work, err = sandbox.ConfineFile(b.workspace(), work); err != nil || path.IsAbs(work) {
		b.work = path.Join(b.workspace(), sandbox.WorkFolder)
	}
	return b, nil
}

// setUp prepares the working directory of a new box.
func (p *Provider) setUp(
	ctx context.Context, i info, o sandbox.Options, repo repository, r sandbox.Repository,
) (*box, error) {
	o.Step("starting the box " + i.ID)
	i, err := p.started(ctx, i, nil)
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
	o.Step("cloning " + repo.owner + "/" + repo.name)
	return b, b.cloneByDaemon(ctx, repo.address, r, o.Token)
}
