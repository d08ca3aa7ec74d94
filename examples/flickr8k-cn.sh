#!/usr/bin/env bash
# Flickr8k-CN, English to Chinese, from the official files to a report: train on machine translations, evaluate with
# human captions, find wrong translations, repair them, search.
#
#   examples/flickr8k-cn.sh DATA_FOLDER
#
# DATA_FOLDER holds
#   data/ or official/    the captions and lists: `ccr data describe flickr8k-cn` says where they are published
#   images/ or images_val/  the photographs, ITEM.jpg (with given features, at least of the validation items)
#   efficientnet_lite0_fp16.npy, items.csv  given features, one row per item, and the items in row order (column item_id);
#                         without them the features are made from the photographs
#
# Everything is chosen on one half of the validation items and measured on the other. The test items are left for the
# final measurement.
#
# WORKSPACE (flickr8k-cn)  folder of the artifacts      EPOCHS (4)  epochs of every run
# You can stop it at any time; the same command resumes.
set -euo pipefail

if [ $# -ne 1 ] || [ ! -d "$1" ]; then
    echo "usage: $0 DATA_FOLDER (the top of this file lists what it must contain)" >&2
    exit 2
fi
here="$(cd "$(dirname "$0")" && pwd)"
command -v ccr >/dev/null || PATH="$here/../.venv/bin:$PATH"
source="$(cd "$1" && pwd)"
export CCR_WORKSPACE="${WORKSPACE:-flickr8k-cn}"
EPOCHS="${EPOCHS:-4}"
mkdir -p "$CCR_WORKSPACE"
out="$(cd "$CCR_WORKSPACE" && pwd)"

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS" >&2; }
# Exit code 3 is "done, some items failed" (failures.jsonl lists them); later steps can continue.
some() { "$@" || [ $? -eq 3 ]; }
# Exit code 5 is "something is not installed"; ccr names it.
optional() { "$@" || [ $? -eq 5 ]; }
# A stage prints the artifacts that it read, then its own on the last line.
made() { some "$@" | tail -n 1; }

root="$source"
if [ -d "$source/official" ]; then root="$source/official"; fi
images="$source/images"
if [ -d "$source/images_val" ]; then images="$source/images_val"; fi

step "import: make a dataset from the official files; missing ones are reported and recorded"
data="$(made ccr data import flickr8k-cn --root "$root" --media-root "$images" --allow-partial)"

step "translate: recorded translations of two engines, compared with human captions"
google="$(made ccr translate "$data" --lang zh --engine recorded --set engine=google-2016 --name google)"
ccr translate "$data" --lang zh --engine recorded --set engine=baidu-2016 --name baidu

step "extract: one vector per photograph, given or made here"
if [ -f "$source/efficientnet_lite0_fp16.npy" ]; then
    tail -n +2 "$source/items.csv" | cut -d, -f1 >"$out/ids.txt"
    features="$(made ccr extract "$data" --from "$source/efficientnet_lite0_fp16.npy" --ids "$out/ids.txt" \
        --encoder-name efficientnet-lite0)"
else
    features="$(made ccr extract "$data" --encoder efficientnet-lite0)"
fi

step "train: two methods, on the original translations and with 40 % of them switched"
train=(ccr train "$data" "$features" --epochs "$EPOCHS")
"${train[@]}" "$google" --sweep method=infonce,uml --sweep noise=0,0.4 >"$out/trained.txt"
grep /runs/ "$out/trained.txt" >"$out/runs.txt"
# Existing runs are not trained again: these commands only print the names of some of them.
plain="$(made "${train[@]}" "$google" --method infonce)"
noisy="$(made "${train[@]}" "$google" --method infonce --noise 0.4)"
robust="$(made "${train[@]}" "$google" --method uml --noise 0.4)"

step "evaluate: human Chinese queries, on the half of validation that chose nothing"
ccr evaluate - --split val-report <"$out/runs.txt" >"$out/evaluated.txt"

step "trust: does uncertainty rise for corrupted queries, and does it detect queries without a match?"
for share in 0.3 0.6; do
    ccr evaluate "$robust" --split val-report --lang zh --corrupt "$share" >>"$out/evaluated.txt"
done
ccr evaluate "$robust" --split val-report --lang zh --ood half >>"$out/evaluated.txt"

step "text to text: do Chinese sentences find the English ones that they were translated from?"
ccr evaluate "$plain" "$robust" --split val-report --task text >>"$out/evaluated.txt"

step "compare: is uml better than infonce when translations are switched?"
ccr compare "$noisy" "$robust"

step "diagnose: find the pairs that each run considers mismatched, against the known truth"
ccr diagnose - <"$out/runs.txt" >"$out/diagnosed.txt"

step "list the most suspicious translations, as a table and with the English"
ccr diagnose "$plain" --judge two-group --worst 20 --sheet "$out/worst.html"

step "repair, first way: train without the noisy pairs"
ccr diagnose "$noisy" --judge two-group --export "$out/switched.parquet" >"$out/exported.txt"
without="$(made "${train[@]}" "$google" --method infonce --noise 0.4 --verdicts "$out/switched.parquet")"

step "repair, second way: translate the worst twentieth again, with the other engine"
ccr diagnose "$plain" --judge two-group --share 0.05 --export "$out/worst.csv" >"$out/exported.txt"
mended="$(made ccr translate "$google" --only "$out/worst.csv" --engine recorded --set engine=baidu-2016 --name mended)"
again="$(made "${train[@]}" "$mended" --method infonce)"

step "did it help?"
ccr evaluate "$without" "$again" --split val-report >"$out/repaired.txt"
ccr compare "$noisy" "$without"
ccr compare "$plain" "$again"

step "report: one page, figures (SVG, PDF, PNG) and tables (Markdown, CSV, LaTeX, JSON)"
report="$(made ccr report --split val-report --searches 3 --map 20 --title "Flickr8k-CN, validation: searched in Chinese")"

step "search: with words, as a contact sheet"
ccr search "一只狗在雪地里跑" "$plain" --split val --top 10 --sheet "$out/dog-in-snow.png"
printf '%s\n' "两个孩子在玩水" "一个男人在爬山" "骑自行车的人" >"$out/queries.txt"
ccr search "$plain" --split val --query-file "$out/queries.txt" --json >"$out/answers.jsonl"

step "index: for much larger galleries"
optional ccr index "$plain" --split val

step "export: a model folder that works without ccr"
ccr export "$plain"

step "done"
echo "the page to look at: $report/report.html"
echo "wrong translations:  $out/worst.html"
echo "a search:            $out/dog-in-snow.png"
