#!/usr/bin/env bash
# kcat is a command-line client that the compat tests run. Installs it from Debian if it is missing.
set -euo pipefail
command -v kcat >/dev/null && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "test-setup: kcat is missing; install it first" \
    "(Debian, Ubuntu: sudo apt-get install kcat)" >&2
  exit 1
fi
echo "test-setup: installing kcat from Debian"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install --yes --quiet=2 --no-install-recommends kcat >/dev/null; }
install 2>/dev/null || { apt-get update --quiet=2 && install; }
