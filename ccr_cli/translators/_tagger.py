"""apertium-tagger, tagging each text independently. A program for Apertium's pipe; no module imports it.

Arguments: the path of the real program, then its own arguments. If a word has an unknown combination of parts of
speech, Apertium's HMM tagger uses the nearest known one and overwrites the parts of speech of unknown words with it, so
that it tags all later texts differently (nine of 1,500 English captions). With `-d` it reports that; a new process,
started within milliseconds, then tags the next text. The perceptron tagger (`-x`) keeps no such state.
"""

import os
import subprocess
import sys

_LONG = 8192
"""Texts of more bytes than this, which is less than a pipe holds, get a process of their own."""


def main() -> None:
    """Tags the NUL-terminated texts on standard input, one by one."""
    program, *arguments = sys.argv[1:]
    flags = [argument for argument in arguments if argument.startswith("-")]
    if not any("z" in flag for flag in flags) or any("x" in flag for flag in flags):
        os.execv(program, [program, *arguments])
    command = [program, "-d", *arguments]
    tagger = None
    *texts, rest = sys.stdin.buffer.read().split(b"\0")
    for text in texts:
        if len(text) > _LONG:
            done = subprocess.run(command, input=text + b"\0", capture_output=True, check=True)
            tagged = done.stdout[: done.stdout.index(b"\0") + 1]
        else:
            tagger = tagger or _start(command)
            tagged = _tag(tagger, text)
            assert tagger.stderr
            if tagger.stderr.read():  # it has reported an unknown combination
                tagger.kill()
                tagger.communicate()
                tagger = None
        sys.stdout.buffer.write(tagged)
    sys.stdout.buffer.write(rest)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    tagger = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe)
    assert tagger.stderr
    os.set_blocking(tagger.stderr.fileno(), False)
    return tagger


def _tag(tagger: subprocess.Popen[bytes], text: bytes) -> bytes:
    assert tagger.stdin and tagger.stdout
    tagger.stdin.write(text + b"\0")
    tagged = b""
    while not tagged.endswith(b"\0"):
        part = os.read(tagger.stdout.fileno(), 65536)
        if not part:
            raise SystemExit(f"apertium-tagger ended with {tagger.wait()}")
        tagged += part
    return tagged


if __name__ == "__main__":
    main()
