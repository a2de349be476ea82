#!/bin/sh
# Starts Prometheus and Grafana until Ctrl-C: the programs of this machine where it has them, else containers.
set -eu
cd "$(dirname "$0")"
pids=
has_compose() { docker compose version > /dev/null 2>&1; }
stop() { [ -z "$pids" ] || kill $pids 2> /dev/null || true; }
trap stop EXIT
trap 'exit 130' INT TERM

if command -v prometheus > /dev/null; then
    address="127.0.0.1:${PROMETHEUS_PORT:-9090}"
    prometheus --config.file=prometheus.yml --storage.tsdb.path=data/prometheus --web.listen-address="$address" &
    pids="$pids $!"
    echo "Prometheus: http://$address"
elif has_compose; then
    exec docker compose up
else
    echo "Install Prometheus (apt-get install prometheus) or Docker with its compose plugin first." >&2
    exit 1
fi

if command -v grafana > /dev/null; then
    mkdir -p data/grafana
    export GF_PATHS_PROVISIONING="$PWD/grafana/provisioning" GF_PATHS_DATA="$PWD/data/grafana"
    export GF_PATHS_LOGS="$PWD/data/grafana" TAMIS_DASHBOARDS="$PWD/grafana/dashboards"
    export GF_SERVER_HTTP_ADDR=127.0.0.1 GF_SERVER_HTTP_PORT="${GRAFANA_PORT:-3000}" GF_AUTH_ANONYMOUS_ENABLED=true
    grafana server --homepath "${GRAFANA_HOME:-/usr/share/grafana}" > data/grafana/output.log 2>&1 &
    pids="$pids $!"
    echo "Grafana: http://127.0.0.1:$GF_SERVER_HTTP_PORT"
elif has_compose; then
    docker compose up grafana &
    pids="$pids $!"
    echo "Grafana: http://127.0.0.1:3000"
else
    echo "Grafana is not installed; its dashboard is grafana/dashboards/tamis.json"
fi
wait
