#!/usr/bin/env bash
# The first hour with your own data: pictures and English captions in a table, searched in Spanish.
#
#   make demo            # once, installs ccr into .venv
#   examples/products.sh
#
# The 300 "products" are bundled emoji, written as JPEGs and products.csv. With your own table, start at "import".
#
# WORKSPACE (products)     folder of the artifacts
# EPOCHS (8)               epochs of the run
# METHOD (uml)             training method; with a few hundred items also try infonce
# DATA (noto-emoji)        the data set in the dataset format that plays the shop, or its folder
# You can stop it at any time; the same command resumes.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
command -v ccr >/dev/null || PATH="$here/../.venv/bin:$PATH"
export CCR_WORKSPACE="${WORKSPACE:-products}"
mkdir -p "$CCR_WORKSPACE"
out="$(cd "$CCR_WORKSPACE" && pwd)"

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS" >&2; }
# Exit code 3 is "done, some items failed" (failures.jsonl lists them); later steps can continue.
made() { { "$@" || [ $? -eq 3 ]; } | tail -n 1; }

step "products.csv: image,caption"
python3="$(dirname "$(command -v ccr)")/python3"
"$python3" - "${DATA:-noto-emoji}" "$out/shop" <<'PYTHON'
import csv
import shutil
import sys
from pathlib import Path

from PIL import Image

from ccr_cli.data.manifests import bundled_root, read_folder
from ccr_cli.data.pictures import upright_rgb

source, shop = sys.argv[1:]
folder = read_folder(Path(source) if Path(source).is_dir() else bundled_root() / source)
(Path(shop) / "images").mkdir(parents=True, exist_ok=True)
items = folder.items.iloc[:: max(1, len(folder.items) // 300)].head(300)
for item, media in zip(items["item_id"], items["media"]):
    with Image.open(folder.path / "media" / media) as picture:
        upright_rgb(picture).save(f"{shop}/images/{item}.jpg", quality=90)
captions = folder.captions[(folder.captions["lang"] == "en") & folder.captions["item_id"].isin(items["item_id"])]
with open(f"{shop}/products.csv", "w", encoding="utf-8", newline="") as file:
    table = csv.writer(file)
    table.writerow(("image", "caption"))
    table.writerows((f"{item}.jpg", text) for item, text in zip(captions["item_id"], captions["text"]))
(spanish,) = [table for table in folder.tables if table.stem.endswith("-en-es")]
shutil.copyfile(spanish, f"{shop}/en-es.tsv")
PYTHON

step "import: columns, pictures and split are guessed"
data="$(made ccr data import "$out/shop/products.csv")"

step "translate: these captions were translated before; yours need an engine, such as --engine hf"
spanish="$(made ccr translate "$data" --lang es --engine recorded --set table="$out/shop/en-es.tsv")"

step "extract: one vector per picture, with a small encoder; better with clip, the default"
features="$(made ccr extract "$data" --encoder efficientnet-lite0 --set image_size=128)"

step "train: a method that withstands wrong translations"
run="$(made ccr train "$data" "$spanish" "$features" --method "${METHOD:-uml}" --epochs "${EPOCHS:-8}")"

step "evaluate: Spanish queries written by the engine, English ones by people"
ccr evaluate "$run" >/dev/null    # its table is on standard error

step "diagnose: the captions that fit their pictures least"
ccr diagnose "$run" --worst 10 --sheet "$out/worst.html"

step "search: all products, in Spanish, although nobody wrote a Spanish caption"
ccr search "una cara feliz" "$run" --top 10
ccr search "un animal" "$run" --top 10 --sheet "$out/search.html"

step "done"
echo "the captions to check: $out/worst.html"
echo "a search:              $out/search.html"
