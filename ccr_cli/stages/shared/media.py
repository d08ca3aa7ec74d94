"""Media as inputs of an encoder: a picture, the frames of a video, or clips of them.

Shape suffixes: C inputs of a video, L frames of an input.
"""

import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, stack

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.dataset import media_root
from ccr_cli.data.formats.base import is_video
from ccr_cli.data.sampling import gather
from ccr_cli.data.video import MAX_PIXELS, Frame, Video, open_video
from ccr_cli.errors import ArtifactError, CcrError


def existing_root(data: Artifact, root: Path | None, setting: str) -> Path:
    """Resolves `root`, or else a data set's own media root; ArtifactError that names the setting if there is none."""
    root = root or media_root(data)
    if root is None or not root.is_dir():
        reason = f"its media root {root} does not exist" if root else "it names no media root"
        raise ArtifactError(f"{data.name} has no media: {reason}", hint=f"set it: {setting}")
    return root.resolve()


class MediaError(Exception):
    """A medium without input: `Cause: details`. Features artifacts record the text, so rewording changes their ids."""


@dataclass(frozen=True)
class Medium:
    """A picture or a video."""

    kind: str
    """`image` or `video`, as the data set declares it."""
    media: str | None
    """Path relative to the media root."""


@dataclass(frozen=True)
class MediaReader:
    """Decodes and preprocesses media, in any number of threads."""

    root: Path
    """Media root, resolved; files outside of it are refused."""
    model: Any
    """The encoder, or anything with its `preprocess` and `sampling`."""

    def read(self, medium: Medium) -> Generator[Tensor, None, str | None]:
        """Yields the inputs of a medium, or raises MediaError; returns the damage of a video that still gives some."""
        damage: str | None = None
        try:
            path = self._path(medium.media)
            if medium.kind == "video":
                damage = yield from self._video(path)
            else:
                yield self._picture(path)
        except FileNotFoundError:
            raise MediaError(f"FileNotFound: {medium.media}") from None
        except (MediaError, CcrError, MemoryError):
            raise
        except Exception as error:  # a damaged file can make a decoder raise anything; it never stops the others
            message = str(error).replace(f"{self.root}{os.sep}", "")  # a record holds no path of this machine
            if medium.kind == "image" and is_video(medium.media or ""):
                message = "by its name a video, and the data set calls it an image; import it with the column kind"
            raise MediaError(f"{type(error).__name__}: {medium.media}: {message}") from None
        return damage

    def _path(self, media: str | None) -> Path:
        if media is None:
            raise MediaError("NoMedia: the item names no file")
        path = (self.root / media).resolve()
        if not path.is_relative_to(self.root):
            raise MediaError(f"OutsideMediaRoot: {media} leads out of the media root")
        if path.exists() and not path.is_file():  # a folder, or a pipe, which would never end
            raise MediaError(f"NoFile: {media} is no file")
        return path

    def _picture(self, path: Path) -> Tensor:
        length = self.model.sampling.clip_frames
        if length > 1:
            takes = f"the encoder takes clips of {length} frames of a video"
            raise MediaError(f"StillImage: {takes}, and this is a picture")
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise MediaError(f"TooLarge: {image.width} x {image.height} pixels, at most {MAX_PIXELS}")
            image.load()
            pixels: Tensor = self.model.preprocess(image)
            return pixels

    def _video(self, path: Path) -> Generator[Tensor, None, str | None]:
        sampling = self.model.sampling
        video = open_video(path)
        number_CL = video.at(sampling.clips(video.duration_s, video.shown_F))
        decoded = []

        def prepared(frame: Frame) -> Tensor:
            decoded.append(frame.decoded)
            pixels: Tensor = self.model.preprocess(Image.fromarray(frame.pixels))
            return pixels

        frames = (prepared(frame) for frame in video.stream(np.unique(number_CL)))
        for clip in gather(frames, number_CL):
            yield clip[0] if sampling.clip_frames == 1 else stack(clip)
        return _damage(video, decoded)


def _damage(video: Video, decoded: list[bool]) -> str | None:
    """Describes the damage to a video that gave frames; MediaError if no requested frame decodes."""
    if not any(decoded):
        raise MediaError(f"Undecodable: none of the {len(decoded)} frames that were asked for decodes")
    damage = []
    if not all(decoded):
        damage.append(f"frames_expected={len(decoded)} frames_decoded={sum(decoded)}, the rest stood in for")
    if video.frames_expected is not None and video.frames < video.frames_expected:
        damage.append(f"the file was cut off: {video.frames} of {video.frames_expected} frames are there")
    return f"Damaged: {'; '.join(damage)}" if damage else None
