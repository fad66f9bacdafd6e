// Package anthropic is Anthropic's Messages API as a model.Model, by Anthropic's own library. No variable of the
// environment, profile or configuration file of this machine has an influence on it.
package anthropic

import (
	"context"
	"errors"
	"net/http"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
)

// Model is Anthropic's API. Make it with New.
type Model struct {
	client   *provider.Client
	messages sdk.MessageService
}

// New returns the model. The base URL is without the version: https://api.anthropic.com.
func New(c provider.Config) (*Model, error) {
	client, err := provider.New(c, "https://api.anthropic.com")
	if err != nil {
		return nil, err
	}
	// A service takes nothing from the environment but the switches of its traces; a client would.
	return &Model{client, sdk.NewMessageService(
		option.WithBaseURL(client.BaseURL), option.WithAPIKey(c.Key), option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),
	)}, nil
}

// Stream implements model.Model.
func (m *Model) Stream(ctx context.Context, r model.Request, f func(model.Event)) (model.Reply, error) {
	var a answer
	err := m.client.Do(ctx, func(ctx context.Context, h *http.Client) error {
		stream := m.messages.NewStreaming(ctx, encode(r), option.WithHTTPClient(h))
		defer func() { _ = stream.Close() }() // all that counts has been read
		for stream.Next() {
			e := stream.Current()
			if err := a.add(e, f); err != nil {
				return err
			}
			if e.Type == "message_stop" {
				return a.end()
			}
		}
		var e *sdk.Error
		switch err := stream.Err(); {
		case errors.As(err, &e):
			return provider.Streamed(e.RawJSON())
		case err != nil:
			return err
		}
		return a.end()
	})
	if err != nil {
		return model.Reply{Usage: a.usage()}, err
	}
	return a.reply(), nil
}
