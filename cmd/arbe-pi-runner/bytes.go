package main

import "encoding/json"

// rawJob is the encoding of a job. The user's strings are bytes: JSON strings would change those that are not UTF-8.
type rawJob struct {
	jobFields
	Args, Environ               [][]byte
	State, Cwd, Session, Prompt []byte
}

type jobFields job

// MarshalJSON keeps every byte of the user's strings.
func (j job) MarshalJSON() ([]byte, error) {
	raw := rawJob{
		jobFields: jobFields(j), Args: toBytes(j.Args), Environ: toBytes(j.Environ),
		State: []byte(j.State), Cwd: []byte(j.Cwd), Session: []byte(j.Session), Prompt: []byte(j.Prompt),
	}
	return json.Marshal(raw)
}

// UnmarshalJSON decodes what MarshalJSON returned.
func (j *job) UnmarshalJSON(b []byte) error {
	var raw rawJob
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*j = job(raw.jobFields)
	j.Args, j.Environ = toStrings(raw.Args), toStrings(raw.Environ)
	j.State, j.Cwd, j.Session, j.Prompt = string(raw.State), string(raw.Cwd), string(raw.Session), string(raw.Prompt)
	return nil
}

func toBytes(list []string) (all [][]byte) {
	for _, s := range list {
		all = append(all, []byte(s))
	}
	return all
}

func toStrings(list [][]byte) (all []string) {
	for _, b := range list {
		all = append(all, string(b))
	}
	return all
}
