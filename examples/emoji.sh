#!/usr/bin/env bash
# A complete tour on the bundled emoji: pictures with English captions, searched in Spanish and French.
#
#   make demo            # once, installs ccr into .venv
#   examples/emoji.sh
#
# WORKSPACE (emoji)        folder of the artifacts
# EPOCHS (8)               epochs of every run
# DATA (noto-emoji)        another data set with recorded translations into Spanish and French, or its folder
# CORRECTIONS (emoji-corrections.tsv next to this file)  human Spanish for badly translated captions
# You can stop it at any time; the same command resumes.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
command -v ccr >/dev/null || PATH="$here/../.venv/bin:$PATH"
export CCR_WORKSPACE="${WORKSPACE:-emoji}"
EPOCHS="${EPOCHS:-8}"
DATA="${DATA:-noto-emoji}"
CORRECTIONS="${CORRECTIONS:-$here/emoji-corrections.tsv}"
mkdir -p "$CCR_WORKSPACE"
out="$(cd "$CCR_WORKSPACE" && pwd)"

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS" >&2; }
# Exit code 3 is "done, some items failed" (failures.jsonl lists them); later steps can continue.
some() { "$@" || [ $? -eq 3 ]; }
# Exit code 5 is "something is not installed"; ccr names it.
optional() { "$@" || [ $? -eq 5 ]; }
# A stage prints the artifacts that it read, then its own on the last line.
made() { some "$@" | tail -n 1; }

step "import: check the files and make a dataset"
data="$(made ccr data import "$DATA")"

step "translate: into two languages with recorded translations, and back to English for reading"
spanish="$(made ccr translate "$data" --lang es --back --with-queries)"
french="$(made ccr translate "$data" --lang fr --back --with-queries)"

step "extract: one vector per picture"
features="$(made ccr extract "$data" --set image_size=128)"

step "train: three methods, on the original translations and with 40 % of them switched between captions"
train=(ccr train "$data" "$features" --epochs "$EPOCHS")
"${train[@]}" "$spanish" --sweep method=infonce,uml,trine --sweep noise=0,0.4 >"$out/trained.txt"
grep /runs/ "$out/trained.txt" >"$out/runs.txt"
# Existing runs are not trained again: these commands only print the names of some of them.
plain="$(made "${train[@]}" "$spanish" --method infonce)"
noisy="$(made "${train[@]}" "$spanish" --method infonce --noise 0.4)"
robust="$(made "${train[@]}" "$spanish" --method trine --noise 0.4)"

step "train: one run on both languages"
made "${train[@]}" "$spanish" "$french" --method uml >>"$out/runs.txt"

step "evaluate: with Spanish and French queries written by people"
ccr evaluate - <"$out/runs.txt" >"$out/evaluated.txt"

step "compare: is trine better than infonce when translations are switched, and by how much?"
ccr compare "$noisy" "$robust"

step "diagnose: find the pairs that each run considers mismatched, against the known truth"
ccr diagnose - <"$out/runs.txt" >"$out/diagnosed.txt"

step "list the most suspicious pairs, as a table and with their pictures"
ccr diagnose "$noisy" --judge two-group --worst 10 --sheet "$out/worst.html"

step "repair, first way: train without the noisy pairs"
ccr diagnose "$noisy" --judge two-group --export "$out/switched.parquet" >"$out/exported.txt"
without="$(made "${train[@]}" "$spanish" --method infonce --noise 0.4 --verdicts "$out/switched.parquet")"

step "repair, second way: mark the wrong pairs in the list and translate them again"
ccr diagnose "$plain" --judge two-group --export "$out/pairs.csv" >"$out/exported.txt"
# Here these are captions that a person corrected; the engine is a table of the corrections.
tail -n +2 "$CORRECTIONS" | cut -f 1 | sed 's/.*/,&,/' >"$out/corrected.txt"
{ head -n 1 "$out/pairs.csv"; grep -F -f "$out/corrected.txt" "$out/pairs.csv" | sed 's/,clean,/,noisy,/'; } >"$out/wrong.csv"
# Their back-translation is the corrected English.
{ cat "$CORRECTIONS"; tail -n +2 "$CORRECTIONS" | awk -F '\t' -v OFS='\t' '{ print $2, $1 }'; } >"$out/by-hand.tsv"
mended="$(made ccr translate "$spanish" --only "$out/wrong.csv" --engine recorded --set table="$out/by-hand.tsv" \
    --name es-corrected)"
again="$(made "${train[@]}" "$mended" --method infonce)"

step "did it help?"
ccr evaluate "$without" "$again" >"$out/repaired.txt"
ccr compare "$noisy" "$without"
ccr compare "$plain" "$again"

step "report: one page, figures (SVG, PDF, PNG) and tables (Markdown, CSV, LaTeX, JSON)"
report="$(made ccr report --searches 3 --map 20 --title "Emoji, searched in Spanish and French")"
cat "$report/tables/sumr.tex"

step "search: with words, as a contact sheet, and with many queries for a program"
ccr search "un animal con cuernos" "$robust" --top 10 --sheet "$out/search.png"
printf '%s\n' "fruta" "cara triste" "instrumento de música" >"$out/queries.txt"
ccr search "$robust" --query-file "$out/queries.txt" --json >"$out/answers.jsonl"

step "index: for much larger galleries"
optional ccr index "$robust" --split all

step "export: a model folder that works without ccr"
ccr export "$robust"

step "verify: check every file against its hash and every parent against its id"
ccr verify

step "done"
echo "the page to look at: $report/report.html"
echo "the worst pairs:     $out/worst.html"
echo "a search:            $out/search.png"
