"""Writes vectors of a data set's captions and pictures by models of sentence-transformers, for `ccr evaluate`.

python vectors.py datasets/DATA PICTURE_MODEL TEXT_MODEL [FOLDER_OF_PICTURES]
ccr evaluate --zero-shot --text-vectors texts.parquet --visual-vectors pictures.parquet

such as clip-ViT-B-32 and sentence-transformers/clip-ViT-B-32-multilingual-v1, its text side for fifty languages.
"""

import sys
from pathlib import Path

import pandas as pd
from PIL import Image
from sentence_transformers import SentenceTransformer

data, media = Path(sys.argv[1]), Path(sys.argv[4] if len(sys.argv) > 4 else f"{sys.argv[1]}/media")
pictures, texts = (SentenceTransformer(name) for name in sys.argv[2:4])
captions, items = (pd.read_parquet(data / name) for name in ("captions.parquet", "items.parquet"))
captions["vector"] = list(texts.encode(list(captions["text"])))
captions.to_parquet("texts.parquet")
items["vector"] = [pictures.encode(Image.open(media / name).convert("RGB")) for name in items["media"]]
items.to_parquet("pictures.parquet")
