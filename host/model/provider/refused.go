package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/model"
)

// fault is an error in the words of a provider.
type fault struct{ kind, code, message string }

// parse reads the forms that providers give an error: an object in "error", most have type, code and message in it
// (OpenAI, Anthropic); a text in "error" (Ollama); these members without "error" (Mistral, vLLM); any of it in an array
// (Gemini). The code may be a number.
func parse(body []byte) (f fault) {
	body = bytes.Trim(bytes.TrimSpace(body), "[]")
	var outer struct{ Error json.RawMessage }
	if json.Unmarshal(body, &outer) != nil {
		return f
	}
	if json.Unmarshal(outer.Error, &f.message) == nil && f.message != "" {
		return f
	}
	if outer.Error != nil {
		body = outer.Error
	}
	var inner struct{ Type, Code, Message any }
	_ = json.Unmarshal(body, &inner) // what is missing stays empty
	text := func(v any) string {
		switch v := v.(type) {
		case string:
			return v
		case float64:
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return ""
	}
	return fault{text(inner.Type), text(inner.Code), text(inner.Message)}
}

// refused returns the error for an answer that is no stream. kind is its media type.
func refused(resp *http.Response, kind string, body []byte) *model.Error {
	e := &model.Error{
		Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header), Message: http.StatusText(resp.StatusCode),
	}
	f := parse(body)
	if f.message != "" {
		e.Message = f.message
	} else if text := strings.TrimSpace(string(body)); kind == "text/plain" && text != "" {
		e.Message = text
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		e.Kind, e.Message = model.Invalid, "a redirect, which is not followed"
		if to, err := url.Parse(resp.Header.Get("Location")); err == nil && to.Host != "" {
			e.Message = "a redirect to " + to.Host + ", which is not followed"
		}
	case resp.StatusCode >= 300:
		e.Kind = kindOf(resp.StatusCode, f)
	case f.message != "":
		e.Kind = kindOf(0, f)
	default:
		e.Kind, e.Message = model.Garbage, "no stream of events, but "+strconv.Quote(kind)
	}
	return e
}

// Streamed returns the error that a provider has sent in a stream, in place of its end.
func Streamed(body string) *model.Error {
	f := parse([]byte(body))
	if f.message == "" {
		f.message = f.kind
	}
	return &model.Error{Kind: kindOf(0, f), Message: "the provider ended its answer: " + f.message}
}

// Types and codes of errors, and parts of messages where providers have no code. The texts are those of Anthropic,
// OpenAI, Bedrock, DashScope, Gemini, Groq, Kimi, llama.cpp, LM Studio, MiniMax, Mistral, Ollama, OpenRouter, Together,
// vLLM, xAI and Z.ai.
var (
	longCodes = []string{
		"context_length_exceeded", "request_too_large", "exceed_context_size_error", "string_above_max_length",
	}
	longTexts = []string{
		"prompt is too long", "prompt too long", "input is too long", "context limit", "context length", "context size",
		"context window", "maximum prompt length", "input token count", "allowed input length", "range of input length",
		"model token limit", "reduce the length",
	}
	deniedCodes = []string{
		"authentication_error", "permission_error", "billing_error", "not_found_error", "invalid_api_key",
		"insufficient_quota", "billing_hard_limit_reached", "model_not_found",
	}
	deniedTexts  = []string{"credit balance is too low", "api key not valid"}
	invalidCodes = []string{"invalid_request_error"}
)

// is reports whether the type or the code is one of these.
func (f fault) is(codes []string) bool {
	return slices.Contains(codes, f.kind) || slices.Contains(codes, f.code)
}

// has reports whether one of these texts is in the message.
func (f fault) has(texts []string) bool {
	message := strings.ToLower(f.message)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(message, text) })
}

// kindOf returns what can be done about an error. The status 0 is that of an error in a stream or in an answer of
// status 200, whose code may be a status.
func kindOf(status int, f fault) model.Kind {
	if n, err := strconv.Atoi(f.code); status == 0 && err == nil {
		status = n
	}
	busy := status == http.StatusTooManyRequests || status >= 500
	switch {
	case f.is(longCodes), !busy && f.has(longTexts):
		return model.TooLong
	case status == http.StatusTooManyRequests && f.has([]string{"request too large"}): // for the limit of a minute
		return model.TooLong
	case f.is(deniedCodes), !busy && f.has(deniedTexts):
		return model.Denied
	case busy, status == 0 && !f.is(invalidCodes):
		return model.Again
	}
	switch status {
	case http.StatusRequestEntityTooLarge:
		return model.TooLong
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound:
		return model.Denied
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly:
		return model.Again
	}
	return model.Invalid
}

// mostRetryAfter bounds how long a provider may have us wait.
const mostRetryAfter = 5 * time.Minute

// retryAfter returns how long a provider wants to be left alone: seconds, or a date by its own clock.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		at, err := http.ParseTime(text)
		now, errNow := http.ParseTime(h.Get("Date"))
		if err != nil || errNow != nil {
			return 0
		}
		seconds = at.Sub(now).Seconds()
	}
	if !(seconds > 0) { // nor is NaN
		return 0
	}
	return time.Duration(min(seconds, mostRetryAfter.Seconds()) * float64(time.Second))
}
