#!/usr/bin/env bash
# Spark's stock Kafka connector, which ours is measured against (see docs/internals/spark.md).
# Taken from Maven by tools/spark_connector/pom.xml, checked against jars.sha256 beside it, kept in
# OTTLA_SPARK_CONNECTOR (.cache/spark-connector by default). Does nothing when it is there.
#   tools/fetch_spark_connector.sh --write-sums    after a change of a version: writes the list anew
set -euo pipefail
cd "$(dirname "$0")/.."
jars=${OTTLA_SPARK_CONNECTOR:-$PWD/.cache/spark-connector}
sums=$PWD/tools/spark_connector/jars.sha256
stamp=$jars/.checked
if [ "${1:-}" != --write-sums ] && [ -e "$stamp" ] && cmp --silent "$stamp" "$sums"; then exit 0; fi

for tool in java mvn; do
  if ! command -v $tool >/dev/null; then
    echo "$tool is missing: tools/fetch_kafka.sh (make kafka-jars) installs it, or says how" >&2
    exit 1
  fi
done
echo "fetching Spark's Kafka connector from Maven into $jars"
mkdir -p "$jars"
rm -f "$jars"/*.jar "$stamp"
mvn --quiet --batch-mode -Dstyle.color=never --file tools/spark_connector/pom.xml \
  dependency:copy-dependencies -DoutputDirectory="$jars"
cd "$jars"
if [ "${1:-}" = --write-sums ]; then sha256sum -- *.jar >"$sums"; fi
sha256sum --quiet --check --strict "$sums"
if [ "$(ls -- *.jar | wc -l)" != "$(wc -l <"$sums")" ]; then
  echo "Maven brought jars that tools/spark_connector/jars.sha256 does not list" >&2
  exit 1
fi
cp "$sums" "$stamp"
