#!/usr/bin/env bash
# Apache Kafka's own jars (broker, clients, tools): judges of our files and clients of our broker.
# Taken from Maven by tools/kafka/pom.xml, checked against tools/kafka/jars.sha256, kept in
# OTTLA_KAFKA_JARS (.cache/kafka by default). Does nothing when they are there already.
#   tools/fetch_kafka.sh --write-sums    after a change of the version: writes the list anew
set -euo pipefail
cd "$(dirname "$0")/.."
jars=${OTTLA_KAFKA_JARS:-$PWD/.cache/kafka}
sums=$PWD/tools/kafka/jars.sha256
stamp=$jars/.checked
if [ "${1:-}" != --write-sums ] && [ -e "$stamp" ] && cmp --silent "$stamp" "$sums"; then exit 0; fi

for tool in java javac mvn; do
  command -v $tool >/dev/null && continue
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "test-setup: $tool is missing; install a JDK 17 or newer and Maven first" \
      "(Debian, Ubuntu: sudo apt-get install default-jdk-headless maven)" >&2
    exit 1
  fi
  echo "test-setup: installing a JDK and Maven from Debian"
  apt-get update --quiet=2
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends \
    default-jdk-headless maven >/dev/null
done

echo "test-setup: fetching Apache Kafka from Maven into $jars"
mkdir -p "$jars"
rm -f "$jars"/*.jar "$stamp"
mvn --quiet --batch-mode -Dstyle.color=never --file tools/kafka/pom.xml \
  dependency:copy-dependencies -DoutputDirectory="$jars"
cd "$jars"
if [ "${1:-}" = --write-sums ]; then sha256sum -- *.jar >"$sums"; fi
sha256sum --quiet --check --strict "$sums"
if [ "$(ls -- *.jar | wc -l)" != "$(wc -l <"$sums")" ]; then
  echo "test-setup: Maven brought jars that tools/kafka/jars.sha256 does not list" >&2
  exit 1
fi
cp "$sums" "$stamp"
