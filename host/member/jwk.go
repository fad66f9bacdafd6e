package member

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// Methods of signatures of a provider.
const (
	rs256 = "RS256"
	es256 = "ES256"
)

// jwk is a JSON Web Key (RFC 7517, 7518). Private members are not read.
type jwk struct {
	Type    string `json:"kty"`
	ID      string `json:"kid"`
	Use     string `json:"use"`
	Method  string `json:"alg"`
	Curve   string `json:"crv"`
	X, Y    string
	N, E    string
	Private string `json:"d"`
}

// mostKeys bounds the keys of a set.
const mostKeys = 100

// Bounds of an RSA modulus, in bits.
const (
	leastRSA = 2048
	mostRSA  = 8192
)

// parseKeys returns the keys of a set that can verify login tokens, and why others were skipped. It takes no symmetric
// key: a published one would let everyone sign.
func parseKeys(b []byte) (keys map[keyName]any, skipped []string, err error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if json.Unmarshal(b, &set) != nil || set.Keys == nil {
		return nil, nil, errors.New("it is no JSON Web Key Set")
	}
	if len(set.Keys) > mostKeys {
		return nil, nil, fmt.Errorf("it has more than %d keys", mostKeys)
	}
	keys = map[keyName]any{}
	for _, k := range set.Keys {
		key, method, err := k.public()
		switch name := (keyName{k.ID, method}); {
		case err != nil:
			skipped = append(skipped, fmt.Sprintf("%.40q: %v", k.ID, err))
		case keys[name] != nil:
			return nil, nil, fmt.Errorf("two keys have the id %.40q", k.ID)
		default:
			keys[name] = key
		}
	}
	if len(keys) == 0 {
		return nil, nil, fmt.Errorf("it has no key for %s or %s: %v", rs256, es256, skipped)
	}
	return keys, skipped, nil
}

// public returns the public key, and the method of its signatures.
func (k jwk) public() (key any, method string, err error) {
	switch {
	case k.ID == "":
		return nil, "", errors.New("it has no kid")
	case k.Use != "" && k.Use != "sig":
		return nil, "", errors.New("it is not for signatures")
	case k.Private != "":
		return nil, "", errors.New("it is a private key, which nobody may publish")
	}
	switch k.Type {
	case "RSA":
		key, err = k.rsa()
		method = rs256
	case "EC":
		key, err = k.ec()
		method = es256
	case "oct":
		return nil, "", errors.New("it is symmetric, so everyone who reads the set could sign")
	default:
		return nil, "", fmt.Errorf("its type %.20q is not used here", k.Type)
	}
	if err == nil && k.Method != "" && k.Method != method {
		err = fmt.Errorf("its alg is %.20q: want %s", k.Method, method)
	}
	return key, method, err
}

func (k jwk) rsa() (*rsa.PublicKey, error) {
	n, err := number(k.N)
	if err != nil {
		return nil, err
	}
	e, err := number(k.E)
	if err != nil {
		return nil, err
	}
	if n.BitLen() < leastRSA || n.BitLen() > mostRSA {
		return nil, fmt.Errorf("it has %d bits: want %d to %d", n.BitLen(), leastRSA, mostRSA)
	}
	if !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 {
		return nil, errors.New("its exponent is not an odd number from 3 to 2^31-1")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (k jwk) ec() (*ecdsa.PublicKey, error) {
	if k.Curve != "P-256" {
		return nil, fmt.Errorf("its curve is %.20q: want P-256", k.Curve)
	}
	const size = 32 // bytes of a coordinate
	point := []byte{4}
	for _, s := range []string{k.X, k.Y} {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil || len(b) != size {
			return nil, fmt.Errorf("a coordinate is not %d bytes of base64url", size)
		}
		point = append(point, b...)
	}
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
}

func number(s string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || len(b) > mostRSA/8+1 {
		return nil, errors.New("a number is not base64url")
	}
	return new(big.Int).SetBytes(b), nil
}
