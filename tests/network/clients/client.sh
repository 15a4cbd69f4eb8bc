# openssl s_client: `client.sh SECONDS NAME:PORT CA OPTIONS...`; it has so long for the answer.
seconds=$1 address=$2 authority=$3
shift 3
(
  printf 'GET /x HTTP/1.1\r\nHost: %s\r\n\r\n' "$address"
  sleep "$seconds"
) | openssl s_client -connect "$address" -CAfile "$authority" -verify_return_error "$@" 2>&1
