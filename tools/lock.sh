#!/usr/bin/env bash
# Writes requirements/*lock.txt anew: every dependency, direct or not, by version and sha256.
# No index, no address of one: pip's own configuration decides where wheels come from.
#   make lock                 keeps the locked versions as far as pyproject.toml allows
#   make lock UPGRADE=1       takes the newest
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
environment=.cache/lock-venv
if [ ! -x $environment/bin/pip-compile ]; then
  "$python" -m venv $environment
  $environment/bin/pip install --quiet "pip-tools==7.6.2"
fi
lock() {
  $environment/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
    --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
    --resolver=backtracking ${UPGRADE:+--upgrade} --output-file "requirements/$1" "${@:2}"
}
lock lock.txt pyproject.toml requirements/build.in
lock test-lock.txt --constraint requirements/lock.txt requirements/test.in
lock spark-lock.txt --constraint requirements/lock.txt --constraint requirements/test-lock.txt \
  requirements/spark.in
