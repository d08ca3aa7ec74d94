#!/usr/bin/env bash
# The whole tour on the bundled emoji: pictures with English captions, searched in Spanish and in French.
#
#   make demo            # once: installs ccr into .venv
#   examples/emoji.sh
#
# WORKSPACE (emoji)        where the artifacts go
# EPOCHS (8)               of every run
# DATA (noto-emoji)        another data set with recorded translations into Spanish and French, or its folder
# CORRECTIONS (emoji-corrections.tsv beside this file)  Spanish that a person wrote for captions translated badly
# Stopped at any moment, the same command goes on where it was.
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
# Exit code 3 is "done, some items failed": what failed is in failures.jsonl, and what follows can go on.
some() { "$@" || [ $? -eq 3 ]; }
# Exit code 5 is "something is not installed", and ccr says what.
optional() { "$@" || [ $? -eq 5 ]; }
# A stage prints the artifacts that it read, then its own: the last line.
made() { some "$@" | tail -n 1; }

step "import: a dataset, checked"
data="$(made ccr data import "$DATA")"

step "translate: into two languages by recorded machine translation, and back, so that one can read it"
spanish="$(made ccr translate "$data" --lang es --back --queries)"
french="$(made ccr translate "$data" --lang fr --back --queries)"

step "extract: a vector a picture"
features="$(made ccr extract "$data" --set image_size=128)"

step "train: three methods, on the translations as they are and with 40 % of them switched between captions"
train=(ccr train "$data" "$features" --epochs "$EPOCHS")
"${train[@]}" "$spanish" --sweep method=infonce,uml,trine --sweep noise=0,0.4 >"$out/trained.txt"
grep /runs/ "$out/trained.txt" >"$out/runs.txt"
# Asked for again, what is there is not made again: these are the names of some of them.
plain="$(made "${train[@]}" "$spanish" --method infonce)"
noisy="$(made "${train[@]}" "$spanish" --method infonce --noise 0.4)"
robust="$(made "${train[@]}" "$spanish" --method trine --noise 0.4)"

step "train: one run on both languages"
made "${train[@]}" "$spanish" "$french" --method uml >>"$out/runs.txt"

step "evaluate: with what Spanish and French speakers call the pictures"
ccr evaluate - <"$out/runs.txt" >"$out/evaluated.txt"

step "compare: is trine better than infonce where translations are switched, and by how much?"
ccr compare "$noisy" "$robust"

step "diagnose: which pairs each run does not believe, against the known truth"
ccr diagnose - <"$out/runs.txt" >"$out/diagnosed.txt"

step "the pairs that look worst, as a table and with their pictures"
ccr diagnose "$noisy" --judge two-group --worst 10 --sheet "$out/worst.html"

step "repair, first way: train without the pairs that are called noisy"
ccr diagnose "$noisy" --judge two-group --export "$out/switched.parquet" >"$out/exported.txt"
without="$(made "${train[@]}" "$spanish" --method infonce --noise 0.4 --pairs "$out/switched.parquet")"

step "repair, second way: look through the list, call noisy what is wrong, translate that again"
ccr diagnose "$plain" --judge two-group --export "$out/pairs.csv" >"$out/exported.txt"
# Here the captions that a person has corrected: the engine that answers is that person's table.
tail -n +2 "$CORRECTIONS" | cut -f 1 | sed 's/.*/,&,/' >"$out/corrected.txt"
{ head -n 1 "$out/pairs.csv"; grep -F -f "$out/corrected.txt" "$out/pairs.csv" | sed 's/,clean,/,noisy,/'; } >"$out/wrong.csv"
# Its way back is the English that was corrected.
{ cat "$CORRECTIONS"; tail -n +2 "$CORRECTIONS" | awk -F '\t' -v OFS='\t' '{ print $2, $1 }'; } >"$out/by-hand.tsv"
mended="$(made ccr translate "$spanish" --only "$out/wrong.csv" --engine recorded --set table="$out/by-hand.tsv" \
    --name es-corrected)"
again="$(made "${train[@]}" "$mended" --method infonce)"

step "did it help?"
ccr evaluate "$without" "$again" >"$out/repaired.txt"
ccr compare "$noisy" "$without"
ccr compare "$plain" "$again"

step "report: one page, figures (SVG, PDF, PNG), tables (Markdown, CSV, LaTeX, JSON)"
report="$(made ccr report --searches 3 --map 20 --title "Emoji, searched in Spanish and French")"
cat "$report/tables/sumr.tex"

step "search: with words, as a contact sheet, and many at once for a program"
ccr search "un animal con cuernos" "$robust" --top 10 --sheet "$out/search.png"
printf '%s\n' "fruta" "cara triste" "instrumento de música" >"$out/queries.txt"
ccr search "$robust" --queries "$out/queries.txt" --json >"$out/answers.jsonl"

step "index: for galleries that are much larger than this one"
optional ccr index "$robust" --split all

step "export: the model as a folder that works without ccr"
ccr export "$robust"

step "verify: every file against its hash, every parent against its id"
ccr verify

step "done"
echo "the page to look at: $report/report.html"
echo "the worst pairs:     $out/worst.html"
echo "a search:            $out/search.png"
