package fakedaytona

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/google/uuid"
)

// Volume is a volume's record.
type Volume struct {
	ID, Name    string
	State       string    // "" for ready
	Ready       time.Time // when one that is being made is ready; the zero time for never
	ErrorReason string
}

// Mount is where a box has a volume.
type Mount struct {
	VolumeID  string `json:"volumeId"`
	MountPath string `json:"mountPath"`
}

// The caller of what follows holds s.mu.

// state returns a volume's state now.
func (s *Server) state(v Volume) string {
	if v.State == "" || !v.Ready.IsZero() && !s.now().Before(v.Ready) {
		return "ready"
	}
	return v.State
}

func (s *Server) volume(v Volume) map[string]any {
	return map[string]any{
		"id": v.ID, "name": v.Name, "organizationId": "00000000-0000-4000-8000-000000000001", "state": s.state(v),
		"createdAt": stamp(s.now()), "updatedAt": stamp(s.now()), "errorReason": v.ErrorReason,
	}
}

func (s *Server) listVolumes(*http.Request) (any, error) {
	all := []any{}
	for _, v := range s.Volumes {
		all = append(all, s.volume(v))
	}
	return all, nil
}

func (s *Server) createVolume(r *http.Request) (any, error) {
	var q struct{ Name string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, apiError{http.StatusBadRequest, err.Error()}
	}
	v := Volume{ID: uuid.NewString(), Name: q.Name}
	s.Volumes = append(s.Volumes, v)
	return s.volume(v), nil
}

// onVolume answers with the volume whose key is the one in the request.
func (s *Server) onVolume(key func(Volume) string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		name := r.PathValue("id")
		for _, v := range s.Volumes {
			if key(v) == name {
				return s.volume(v), nil
			}
		}
		return nil, apiError{http.StatusNotFound, fmt.Sprintf("Volume with ID or name %s not found", name)}
	}
}

// system are the folders where the original mounts nothing.
var system = regexp.MustCompile(`^/(proc|sys|dev|boot|etc|bin|sbin|lib|lib64)(/|$)|^/?$|/\.{1,2}(/|$)|//|^[^/]`)

// mounts refuses what the original refuses of a new box's volumes.
func (s *Server) mounts(wanted []Mount) ([]Mount, error) {
	for _, m := range wanted {
		if system.MatchString(m.MountPath) {
			return nil, apiError{http.StatusBadRequest, fmt.Sprintf("Invalid mount path %s", m.MountPath)}
		}
		found := false
		for _, v := range s.Volumes {
			if v.ID != m.VolumeID && v.Name != m.VolumeID {
				continue
			}
			found = true
			if state := s.state(v); state != "ready" {
				const text = "Volume '%s' is not in a ready state. Current state: %s"
				return nil, apiError{http.StatusBadRequest, fmt.Sprintf(text, v.Name, state)}
			}
		}
		if !found {
			return nil, apiError{http.StatusNotFound, fmt.Sprintf("Volume '%s' not found", m.VolumeID)}
		}
	}
	return wanted, nil
}
