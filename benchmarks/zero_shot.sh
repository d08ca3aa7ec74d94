#!/usr/bin/env bash
# The whole zero-shot table: pretrained dual encoders, and an English one with translated queries, side by side.
#
#   benchmarks/zero_shot.sh                       # needs the network once, for models (about 10 GB)
#   DATA="multi30k" WORKSPACE=FOLDER benchmarks/zero_shot.sh     # data sets imported into that workspace before
#
# WORKSPACE (zero-shot)       folder of the artifacts
# DATA (noto-emoji)           data sets: imported if they are not there, so bundled ones, or folders in ccr's format
# MODELS                      names on the hub, or folders; the first is also searched with translated queries
# LANGS (es)                  languages whose queries are translated into English (must be of DATA)
# ENGINE (auto)               what translates them
# You can stop it at any time; the same command resumes. Models that cannot be had are named and left out.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
command -v ccr >/dev/null || PATH="$here/../.venv/bin:$PATH"
export CCR_WORKSPACE="${WORKSPACE:-zero-shot}"
mkdir -p "$CCR_WORKSPACE"
read -ra models <<<"${MODELS:-openai/clip-vit-base-patch16 google/siglip2-base-patch16-224 \
facebook/metaclip-2-worldwide-b16 BAAI/AltCLIP OFA-Sys/chinese-clip-vit-base-patch16}"
read -ra langs <<<"${LANGS:-es}"

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS" >&2; }
# Exit code 3 is "done, some items failed" (failures.jsonl lists them).
done_or_partly() { "$@" || [ $? -eq 3 ]; }

for data in ${DATA:-noto-emoji}; do
  name="$(basename "$data")"
  if [ ! -d "$CCR_WORKSPACE/datasets/$name" ]; then
    step "import $name"
    ccr data import "$data"
  fi
  for lang in "${langs[@]}"; do
    step "translate $lang queries of $name"
    done_or_partly ccr translate "datasets/$name" --lang "$lang" --with-queries --engine "${ENGINE:-auto}"
  done
done

missing=()
english=(--translate-test)
for model in "${models[@]}"; do
  step "$model"
  for split in val-report test; do
    if ! done_or_partly ccr evaluate --zero-shot --model "$model" --split "$split"; then
      missing+=("$model")
      break
    fi
    if [ ${#english[@]} -gt 0 ]; then
      for lang in "${langs[@]}"; do
        done_or_partly ccr evaluate --zero-shot --model "$model" --split "$split" --lang "$lang" "${english[@]}"
      done
    fi
  done
  english=()
done

step "report"
ccr report
if [ ${#missing[@]} -gt 0 ]; then
  printf 'left out: %s\n' "${missing[*]}" >&2
  exit 3
fi
