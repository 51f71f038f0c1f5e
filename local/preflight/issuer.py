"""The issuer's OpenID configuration and keys, as API Gateway and `live-authorizer` read them."""

import http.client
import json
import urllib.error
import urllib.request

TIMEOUT = 10  # seconds
MOST_BYTES = 1 << 20


def read(url, what):
    """The JSON at an address, or a sentence."""
    if not url.startswith("https://"):
        return None, f"{what} is at {url}, which is not https."
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=TIMEOUT) as response:
            return json.loads(response.read(MOST_BYTES)), None
    except urllib.error.HTTPError as error:
        return None, f"{what} cannot be read: {url} returns {error.code}."
    except (OSError, http.client.HTTPException) as error:
        return None, f"{what} cannot be read: {url}: {getattr(error, 'reason', error)}."
    except ValueError:
        return None, f"{what} at {url} is not JSON."


def mistakes(issuer):
    """What keeps API Gateway from verifying tokens of this issuer."""
    place = issuer.rstrip("/") + "/.well-known/openid-configuration"
    configuration, sentence = read(place, "The OpenID configuration of JwtIssuer")
    if sentence:
        return [sentence]
    told = configuration.get("issuer") if isinstance(configuration, dict) else None
    if told != issuer:
        return [f"JwtIssuer={issuer} is not what the OpenID configuration at {place} says: its issuer is {told}. Tokens have that one in `iss`."]
    address = configuration.get("jwks_uri")
    if not isinstance(address, str):
        return [f"The OpenID configuration at {place} has no `jwks_uri`."]
    keys, sentence = read(address, "The key set of JwtIssuer")
    if sentence:
        return [sentence]
    keys = keys.get("keys") if isinstance(keys, dict) else None
    # API Gateway verifies signatures by RSA only.
    usable = [key for key in keys or [] if isinstance(key, dict) and key.get("kty") == "RSA" and key.get("use", "sig") == "sig" and key.get("n") and key.get("e")]
    if not usable:
        return [f"The key set of JwtIssuer at {address} has no RSA key for signatures; API Gateway accepts RS256, RS384 and RS512 only."]
    return []
