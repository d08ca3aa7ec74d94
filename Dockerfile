# ccr in a container, for GPUs and without: pip's torch for Linux brings its CUDA libraries.
#
#   docker build -t ccr .
#   docker run --rm --gpus all -v "$PWD:/work" ccr doctor
#
# BASE: an image with Python 3.11 or newer, such as a CUDA one.
# TORCH: what pip installs first, such as "torch --index-url URL" for the smaller build without CUDA.
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG EXTRAS=demo,serve,index,video,excel,language
ARG TORCH=torch
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY LICENSES LICENSES
COPY data_manifests data_manifests
COPY ccr_cli ccr_cli
# hadolint ignore=DL3013,SC2086
RUN pip install --no-cache-dir -c constraints.txt ${TORCH} && pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"

RUN useradd --create-home --uid 1000 ccr
USER 1000
WORKDIR /work
ENTRYPOINT ["ccr"]
