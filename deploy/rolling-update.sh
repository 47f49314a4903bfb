#!/bin/sh
# Replaces the servers of docker-compose.yml by ones of the current folder and settings, so that clients notice
# nothing: new ones first, then the old ones go, one after the other, each within its stop_grace_period.
#
#   deploy/rolling-update.sh
#
# Where the new ones do not become healthy it stops there: the old ones go on, and the new ones are removed.
# HAProxy and Valkey stay as they are: `docker compose up --wait` takes up what has changed of them.
#
# (Without --no-deps: with it Compose leaves depends_on out of what it remembers of the new servers, and the next
# `docker compose up` would replace them all at once.)
set -eu

old=$(docker compose ps --quiet app)
count=$(printf '%s\n' "$old" | grep -c .) || { echo "nothing runs: docker compose up --build --wait" >&2; exit 1; }

docker compose build app
if ! docker compose up --detach --wait --no-recreate --scale app=$((count * 2)) app; then
  for id in $(docker compose ps --all --quiet app); do
    case $old in *"$id"*) ;; *) docker rm --force "$id" >/dev/null ;; esac
  done
  echo "the new servers did not become healthy; the old ones go on" >&2
  exit 1
fi
for id in $old; do
  docker stop "$id" >/dev/null
  docker rm "$id" >/dev/null
done
echo "replaced $count servers"
