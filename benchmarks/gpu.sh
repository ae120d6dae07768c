#!/usr/bin/env bash
# The one check of the GPU path: is it right, and how fast is it?  Under 8 minutes on one GPU, nothing to download.
#
#   benchmarks/gpu.sh --pack             on a machine with a network, beforehand: wheels of what the GPU machine lacks,
#                                        into results/gpu-wheels (git-ignored: carry that folder along)
#   benchmarks/gpu.sh                    on the GPU machine, which needs torch and transformers in $PYTHON (python3)
#   benchmarks/gpu.sh --device cpu --tiny   anywhere with torch and transformers: tries the script from end to end
#
# Writes gpu-checks.txt, gpu.json and gpu.md into ${OUT:-results}.  Exit status: 0 all right, 1 a check or a contender
# failed, 2 something is missing.  MINUTES=8 is the whole of it.
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
OUT=${OUT:-results}
WHEELS=results/gpu-wheels
NEEDED="msgspec"                            # beside torch, transformers, numpy: all that the runner and the core import
CHECKING="pytest pluggy iniconfig packaging pygments"  # spares gpu_checks.py where the machine has no pytest

if [ "${1:-}" = --pack ]; then
    for version in 3.11 3.12; do
        "$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
            --python-version "$version" --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
            --platform manylinux2014_x86_64 --dest "$WHEELS/$version" $NEEDED $CHECKING || exit 2
    done
    ls "$WHEELS"/*
    exit 0
fi

DEVICE=cuda
TINY=""
while [ $# -gt 0 ]; do
    case "$1" in
        --device) DEVICE=$2; shift 2 ;;
        --tiny) TINY=--tiny; shift ;;
        *) sed -n '2,12p' "$0" >&2; exit 2 ;;
    esac
done

STARTED=$(date +%s)
LIMIT_S=$(( ${MINUTES:-8} * 60 ))
left_s() { echo $(( LIMIT_S - $(date +%s) + STARTED )); }
has() { "$PYTHON" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)"; }

mkdir -p "$OUT"
export PYTHONPATH=src:tests PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error TOKENIZERS_PARALLELISM=false

for module in torch transformers numpy safetensors; do
    has $module || { echo "$PYTHON has no $module" >&2; exit 2; }
done
VERSION=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for module in $NEEDED $CHECKING; do
    has "$module" && continue
    for wheel in "$WHEELS/$VERSION/$module"-*.whl; do
        [ -e "$wheel" ] || continue
        echo "taking $module from $wheel"
        SITE=${SITE:-$(mktemp -d)}
        "$PYTHON" -m zipfile -e "$wheel" "$SITE"
    done
done
[ -n "${SITE:-}" ] && export PYTHONPATH="$PYTHONPATH:$SITE"
for module in $NEEDED; do
    has "$module" || {
        echo "$PYTHON has no $module, and $WHEELS/$VERSION neither: run benchmarks/gpu.sh --pack where there is a network" >&2
        exit 2
    }
done

# --- is it right? --------------------------------------------------------------------------------
FAILED=0
CHECKS_S=$(( LIMIT_S * 4 / 10 ))
if [ "$DEVICE" = cuda ] && has pytest; then
    timeout "$CHECKS_S" "$PYTHON" -m pytest -c /dev/null --rootdir . --import-mode importlib -p no:cacheprovider \
        -W ignore::pytest.PytestUnknownMarkWarning -q -ra -m gpu --durations 8 tests/runner/test_gpu_runner.py \
        2>&1 | tee "$OUT/gpu-checks.txt" || FAILED=1
else
    timeout "$CHECKS_S" "$PYTHON" benchmarks/gpu_checks.py --device "$DEVICE" 2>&1 | tee "$OUT/gpu-checks.txt" || FAILED=1
fi
[ $FAILED = 0 ] || echo "the checks FAILED: see $OUT/gpu-checks.txt" >&2

# --- how fast is it? -----------------------------------------------------------------------------
BUDGET_S=$(( $(left_s) - 60 ))  # loading, capturing and what runs when the time is up
timeout "$(( $(left_s) - 5 ))" "$PYTHON" benchmarks/gpu_table.py --device "$DEVICE" $TINY --out "$OUT" \
    --budget-s "$BUDGET_S" || FAILED=1
echo "took $(( $(date +%s) - STARTED )) s of $LIMIT_S; exit status $FAILED"
exit $FAILED
