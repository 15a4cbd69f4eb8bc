"""An OpenID provider out of Authlib, with one client that has a secret. Its user is signed in already, and agrees to everything."""

import os
import sys
import time

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc6749.models import AuthorizationCodeMixin, ClientMixin
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import UserInfo
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, jsonify
from joserfc.jwk import RSAKey

PORT, CLIENT, SECRET, REDIRECT = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
ISSUER = f"http://127.0.0.1:{PORT}"
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})


class Client(ClientMixin):
    def get_client_id(self):
        return CLIENT

    def get_default_redirect_uri(self):
        return REDIRECT

    def get_allowed_scope(self, scope):
        return scope

    def check_redirect_uri(self, redirect_uri):
        return redirect_uri == REDIRECT

    def check_client_secret(self, client_secret):
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method, endpoint):
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, response_type):
        return response_type == "code"

    def check_grant_type(self, grant_type):
        return grant_type == "authorization_code"


class User:
    def get_user_id(self):
        return "17"


class Code(AuthorizationCodeMixin):
    def __init__(self, code, request):
        payload = request.payload
        self.code, self.user = code, request.user
        self.redirect_uri, self.scope = payload.redirect_uri, payload.scope
        self.nonce = payload.data.get("nonce")
        self.code_challenge = payload.data.get("code_challenge")
        self.code_challenge_method = payload.data.get("code_challenge_method")

    def get_redirect_uri(self):
        return self.redirect_uri

    def get_scope(self):
        return self.scope

    def get_nonce(self):
        return self.nonce

    def get_auth_time(self):
        return int(time.time())

    def get_acr(self):
        return None

    def get_amr(self):
        return None


CODES = {}


class Grant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]

    def save_authorization_code(self, code, request):
        CODES[code] = Code(code, request)

    def query_authorization_code(self, code, client):
        return CODES.get(code)

    def delete_authorization_code(self, authorization_code):
        CODES.pop(authorization_code.code, None)

    def authenticate_user(self, authorization_code):
        return authorization_code.user


class OpenID(OpenIDCode):
    def exists_nonce(self, nonce, request):
        return False

    def resolve_client_private_key(self, client):
        return KEY

    def get_client_algorithm(self, client):
        return "RS256"

    def get_client_claims(self, client):
        return {"iss": ISSUER}

    def generate_user_info(self, user, scope):
        return UserInfo(sub=user.get_user_id(), preferred_username="ada", groups=["staff", "on-call"])


app = Flask(__name__)
server = AuthorizationServer(app, query_client=lambda id: Client() if id == CLIENT else None, save_token=lambda *_: None)
server.register_grant(Grant, [OpenID(require_nonce=True), CodeChallenge(required=True)])


@app.get("/.well-known/openid-configuration")
def about():
    return jsonify(
        issuer=ISSUER,
        authorization_endpoint=f"{ISSUER}/authorize",
        token_endpoint=f"{ISSUER}/token",
        jwks_uri=f"{ISSUER}/jwks",
        response_types_supported=["code"],
        subject_types_supported=["public"],
        id_token_signing_alg_values_supported=["RS256"],
        code_challenge_methods_supported=["S256"],
        token_endpoint_auth_methods_supported=["client_secret_basic", "client_secret_post"],
    )


@app.get("/jwks")
def jwks():
    return jsonify(keys=[KEY.as_dict(private=False)])


@app.get("/authorize")
def authorize():
    return server.create_authorization_response(grant=server.get_consent_grant(end_user=User()), grant_user=User())


@app.post("/token")
def token():
    return server.create_token_response()


app.run("127.0.0.1", PORT)
