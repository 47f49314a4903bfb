#!/bin/sh
# Makes what the services of docker-compose.yml share in secret, as far as it is missing.
#
#   deploy/secrets.sh [FOLDER]      default: secrets
#
# Run it again whenever you like: a file that is there stays as it is.
set -eu
folder=${1:-secrets}

# The folder keeps others of this machine out. Files can be read by whoever gets in, because each container
# reads them as a user of its own.
mkdir -p "$folder/tls"
chmod 700 "$folder"
umask 022

make() {
  [ -s "$folder/$1" ] && return
  cat >"$folder/$1.new"
  mv "$folder/$1.new" "$folder/$1"
  echo "made $folder/$1" >&2
}

# [secrets] keys_file: what replicas sign and encrypt with, newest first.
[ -s "$folder/keys" ] || openssl rand -base64 32 | make keys

# [admin] keys_file, and the one key in it, by which Prometheus reads the metrics.
if [ ! -s "$folder/admin-key" ]; then
  rm -f "$folder/admin-keys.toml" # it holds the hash of another one
  printf 'mts_prometheus_%s' "$(openssl rand -base64 32 | tr '+/' '-_' | tr -d '=')" | make admin-key
fi
hash=$(openssl dgst -sha256 -r "$folder/admin-key" | cut -d ' ' -f 1)
make admin-keys.toml <<END
[[api_keys]]
id = "prometheus"
hash = "sha256:$hash"
END

# [state] password_file, and the one user of Valkey, who may do what a server needs with keys of its own prefix.
if [ ! -s "$folder/valkey-password" ]; then
  rm -f "$folder/valkey.acl" # it holds the hash of another one
  openssl rand -hex 32 | tr -d '\n' | make valkey-password
fi
hash=$(openssl dgst -sha256 -r "$folder/valkey-password" | cut -d ' ' -f 1)
# `default` lets nobody in, being off and without a password. It may do everything all the same: it is in its name
# that Valkey reads its log again at the start, and what it must not do would be left out in silence.
make valkey.acl <<END
user default off ~* &* +@all
user mcp on #$hash ~mcp:* resetchannels &mcp:* +@all -@admin -@dangerous
END
