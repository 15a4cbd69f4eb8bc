# openssl s_client: `client.sh NAME:PORT CA OPTIONS...`
address=$1 authority=$2
shift 2
(
  printf 'GET /x HTTP/1.1\r\nHost: %s\r\n\r\n' "$address"
  sleep 0.5
) | openssl s_client -connect "$address" -CAfile "$authority" -verify_return_error "$@" 2>&1
