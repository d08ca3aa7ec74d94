#!/usr/bin/env bash
# All figures that need a CUDA device, in pieces of a few minutes, with a file of results each.
#
#   benchmarks/gpu.sh                                    # stops after 9 minutes; the same command resumes
#   DEVICE=cpu RESULTS=/tmp/gpu benchmarks/gpu.sh        # tries the script in small, without such a device
#
# RESULTS (benchmarks/results/gpu)  folder of the figures; a piece whose file is there is not measured again
# MINUTES (9)                       after which no piece runs
# PYTHON                            .venv/bin/python of the checkout, else python
# Training by two processes needs two GPUs, or DEVICE=cpu; on one GPU these pieces are skipped.
# Exit code 3: pieces are left, or some failed; a failed piece leaves NAME.log and is tried again.
set -uo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
device="${DEVICE:-cuda}"
results="${RESULTS:-$here/results/gpu}"
limit=$((60 * ${MINUTES:-9}))
python="${PYTHON:-$here/../.venv/bin/python}"
command -v "$python" >/dev/null || python=python
mkdir -p "$results"
results="$(cd "$results" && pwd)"
cd "$here/.." || exit 1

if [ "$device" = cuda ]; then
  step=(--rounds 10) pictures=(--count 4096 --videos 24) large=(--large 1000000 --queries 100000)
  sentences=(--captions 512 --loop-captions 32 --repeats 3)
  "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    { echo "no CUDA device; DEVICE=cpu tries the script in small" >&2; exit 1; }
else
  step=(--rounds 1 --layers 1 --hidden 64 --vocabulary 9000 --batch 8) pictures=(--count 2 --videos 1)
  large=(--large 2000 --queries 100 --sizes --items 50 --rounds 1) sentences=(--captions 4 --loop-captions 2 --repeats 1)
fi

left=() skipped=""
# piece NAME COMMAND...: measures it unless that is done; the word FILE stands for its file of results.
piece() {
  local name="$1" file="$results/$1.json" words=()
  shift
  [ -s "$file" ] && return
  if [ $((limit - SECONDS)) -lt 60 ]; then
    left+=("$name")
    return
  fi
  for word in "$@"; do words+=("${word/#FILE/$file.partial}"); done
  printf '== %s (%d s)\n' "$name" "$SECONDS" >&2
  if timeout $((limit - SECONDS)) "${words[@]}" >"$results/$name.log" 2>&1; then
    mv "$file.partial" "$file"
    rm "$results/$name.log"
  else
    tail -n 3 "$results/$name.log" >&2
    left+=("$name")
  fi
}

tested() {
  CCR_TEST_DEVICE="$device" "$python" -m pytest tests -m gpu -q -p no:cacheprovider --junit-xml "$1.xml" || return
  "$python" - "$1" <<'END'
import json, sys, xml.etree.ElementTree as tree
suite = next(tree.parse(f"{sys.argv[1]}.xml").iter("testsuite"))
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({key: float(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped", "time")}, file)
END
  local code=$?
  rm -f "$1.xml"
  return $code
}
export -f tested
export device python

# shellcheck disable=SC2016  # "$0" is the word after it
piece tests bash -c 'tested "$0"' FILE
for dtype in float32 bfloat16; do
  piece "train-$dtype" "$python" benchmarks/train_step.py --device "$device" --dtype "$dtype" "${step[@]}" --out FILE
  piece "train-$dtype-compiled" "$python" benchmarks/train_step.py --device "$device" --dtype "$dtype" "${step[@]}" \
    --variants ours encoder --compile --out FILE
done
if [ "$device" = cpu ] || "$python" -c 'import sys, torch; sys.exit(torch.cuda.device_count() < 2)'; then
  for dtype in float32 bfloat16; do
    piece "train-$dtype-2-processes" "$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
      benchmarks/train_step.py --device "$device" --dtype "$dtype" "${step[@]}" --variants ours shared --out FILE
  done
else
  skipped=", except those of training by two processes: they need two GPUs"
fi
for subject in vision clip i3d video; do
  for dtype in float32 bfloat16; do
    piece "extract-$subject-$dtype" "$python" benchmarks/extract.py --device "$device" --dtype "$dtype" \
      --subjects "$subject" --rounds 1 "${pictures[@]}" --out FILE
  done
done
piece evaluate "$python" benchmarks/evaluate.py --device "$device" "${large[@]}" --out FILE
piece translate "$python" benchmarks/translate_throughput.py --device "$device" "${sentences[@]}" --output FILE

if [ ${#left[@]} -gt 0 ]; then
  echo "left: ${left[*]}; the same command resumes" >&2
  exit 3
fi
echo "all figures are in $results$skipped" >&2
