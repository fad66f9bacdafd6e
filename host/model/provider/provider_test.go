package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
)

// answers is a provider that always answers the same.
type answers struct {
	status int
	header http.Header
	body   string
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Header: a.header, Request: r, Body: io.NopCloser(strings.NewReader(a.body)),
	}, nil
}

// refusal returns the error that such an answer comes to.
func (a answers) refusal(t *testing.T) *model.Error {
	t.Helper()
	c, err := provider.New(provider.Config{Key: "sk-the-key", Transport: a}, "https://model.example")
	if err != nil {
		t.Fatal(err)
	}
	err = c.Do(t.Context(), func(ctx context.Context, h *http.Client) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL, nil)
		if err != nil {
			return err
		}
		resp, err := h.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	})
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("%d %s: %T %v", a.status, a.body, err, err)
	}
	return e
}

// TestKinds has answers as providers document them, or as their users have reported them.
func TestKinds(t *testing.T) {
	const anthropic = `{"type":"error","error":{"type":"%s","message":"%s"}}`
	const openai = `{"error":{"message":"%s","type":"%s","param":null,"code":"%s"}}`
	for _, tt := range []struct {
		status int
		body   string
		want   model.Kind
	}{
		// Anthropic
		{400, fmt.Sprintf(anthropic, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"), model.TooLong},
		{400, fmt.Sprintf(anthropic, "invalid_request_error", "input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length or `max_tokens` and try again"), model.TooLong},
		{413, fmt.Sprintf(anthropic, "request_too_large", "Request exceeds the maximum size"), model.TooLong},
		{400, fmt.Sprintf(anthropic, "invalid_request_error", "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: c1"), model.Invalid},
		{400, fmt.Sprintf(anthropic, "invalid_request_error", "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"), model.Invalid},
		{400, fmt.Sprintf(anthropic, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."), model.Denied},
		{402, fmt.Sprintf(anthropic, "billing_error", "Your account is not in good standing"), model.Denied},
		{401, fmt.Sprintf(anthropic, "authentication_error", "invalid x-api-key"), model.Denied},
		{404, fmt.Sprintf(anthropic, "not_found_error", "model: claude-9"), model.Denied},
		{429, fmt.Sprintf(anthropic, "rate_limit_error", "This request would exceed your organization's rate limit of 40,000 input tokens per minute"), model.Again},
		{529, fmt.Sprintf(anthropic, "overloaded_error", "Overloaded"), model.Again},
		// OpenAI
		{400, fmt.Sprintf(openai, "This model's maximum context length is 128000 tokens.", "invalid_request_error", "context_length_exceeded"), model.TooLong},
		{400, fmt.Sprintf(openai, "Your input exceeds the context window of this model.", "invalid_request_error", ""), model.TooLong},
		{429, fmt.Sprintf(openai, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 35000.", "tokens", "rate_limit_exceeded"), model.TooLong},
		{429, fmt.Sprintf(openai, "Rate limit reached for gpt-4o on requests per min (RPM).", "requests", "rate_limit_exceeded"), model.Again},
		{429, fmt.Sprintf(openai, "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"), model.Denied},
		{404, fmt.Sprintf(openai, "The model `gpt-9` does not exist or you do not have access to it.", "invalid_request_error", "model_not_found"), model.Denied},
		{400, fmt.Sprintf(openai, "Invalid schema for function 'look'", "invalid_request_error", "invalid_function_parameters"), model.Invalid},
		{500, fmt.Sprintf(openai, "The server had an error while processing your request.", "server_error", ""), model.Again},
		// those who serve the same API
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_ctx":4096}}`, model.TooLong}, // llama.cpp
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}`, model.TooLong},                  // vLLM
		{400, `[{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}]`, model.TooLong},
		{400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]`, model.Denied},                                                              // Gemini
		{400, `{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error"}}`, model.TooLong},                                                               // Groq
		{400, `{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}`, model.TooLong},                               // xAI
		{400, `{"object":"error","message":"Prompt contains 65673 tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","param":null,"code":"3051"}`, model.TooLong}, // Mistral
		{404, `{"error":"model 'm' not found"}`, model.Denied}, // Ollama
		{422, `{"detail":[{"type":"extra_forbidden"}]}`, model.Invalid},
		{400, ``, model.Invalid},
		{408, ``, model.Again},
		{503, `<html>`, model.Again},
		{200, `{"error":{"message":"Provider returned error","code":502}}`, model.Again}, // OpenRouter
		{200, `{"error":{"message":"No cookie auth credentials found","code":401}}`, model.Denied},
		{200, `{"id":"x"}`, model.Garbage},
		{202, `{}`, model.Garbage},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		e := answers{status: tt.status, header: header, body: tt.body}.refusal(t)
		if e.Kind != tt.want || e.Status != tt.status || e.Message == "" {
			t.Errorf("%d %s: kind %d, want %d: %s", tt.status, tt.body, e.Kind, tt.want, e.Message)
		}
	}
}

// TestRetryAfter holds how long a provider may have us wait, whatever it writes. Dates are by its own clock.
func TestRetryAfter(t *testing.T) {
	date := "Mon, 01 Jun 2026 12:00:00 GMT"
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "0.5": time.Second / 2, "-3": 0, "300": 5 * time.Minute,
		"301": 5 * time.Minute, "1e300": 5 * time.Minute, "+Inf": 5 * time.Minute, "NaN": 0, "soon": 0,
		"Mon, 01 Jun 2026 12:00:20 GMT": 20 * time.Second, "Tue, 02 Jun 2026 12:00:00 GMT": 5 * time.Minute,
		"Sun, 31 May 2026 12:00:00 GMT": 0,
	} {
		e := answers{status: 429, header: http.Header{"Retry-After": {text}, "Date": {date}}}.refusal(t)
		if e.RetryAfter != want {
			t.Errorf("%q: %v, want %v", text, e.RetryAfter, want)
		}
	}
	e := answers{status: 429, header: http.Header{"Retry-After": {date}}}.refusal(t)
	if e.RetryAfter != 0 {
		t.Errorf("a date without a clock: %v", e.RetryAfter)
	}
}
