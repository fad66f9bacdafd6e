// Package openai is OpenAI's Chat Completions API as a model.Model, by OpenAI's own library. Many other providers serve
// the same API. No variable of the environment has an influence on it.
package openai

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
)

const host = "api.openai.com"

// Model is the API of OpenAI, or of another provider. Make it with New.
type Model struct {
	client *provider.Client
	chat   sdk.ChatCompletionService
	own    bool // OpenAI's
}

// New returns the model. The base URL is with the version: https://api.openai.com/v1.
func New(c provider.Config) (*Model, error) {
	client, err := provider.New(c, "https://"+host+"/v1")
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(client.BaseURL)
	if err != nil {
		return nil, err
	}
	// A service takes nothing from the environment; a client would.
	return &Model{client, sdk.NewChatCompletionService(
		option.WithBaseURL(client.BaseURL), option.WithAPIKey(c.Key), option.WithMaxRetries(0),
	), u.Hostname() == host}, nil
}

// Stream implements model.Model.
func (m *Model) Stream(ctx context.Context, r model.Request, f func(model.Event)) (model.Reply, error) {
	var a answer
	err := m.client.Do(ctx, func(ctx context.Context, h *http.Client) error {
		params, err := encode(r)
		if err != nil {
			return err
		}
		// OpenAI's newer models refuse max_tokens; of the others some know nothing else.
		if m.own {
			params.MaxCompletionTokens = sdk.Int(int64(r.MaxTokens))
		} else {
			params.MaxTokens = sdk.Int(int64(r.MaxTokens))
		}
		stream := m.chat.NewStreaming(ctx, params, option.WithHTTPClient(h))
		defer func() { _ = stream.Close() }() // all that counts has been read
		for stream.Next() {
			a.add(stream.Current(), f)
		}
		var e *ssestream.StreamError
		switch err := stream.Err(); {
		case errors.As(err, &e):
			return provider.Streamed(string(e.Event.Data))
		case err != nil:
			return err
		}
		return a.end()
	})
	if err != nil {
		return model.Reply{Usage: a.usage}, err
	}
	return a.reply(), nil
}
