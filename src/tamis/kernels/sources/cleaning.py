"""The kernel of the modifiers: changes texts and copies the others; copies nothing if no text changes."""

from __future__ import annotations

from tamis.kernels import operations
from tamis.kernels.sources.cutting import keep_slice, remove_lines, remove_markdown, remove_quotes
from tamis.kernels.sources.primitives import PADDING, as_bytes, prefetch
from tamis.kernels.sources.replacing import (
    collapse_blanks,
    copy,
    copy_exactly,
    normalize_newlines,
    remove_controls,
    remove_urls,
    unify_quotes,
    with_label,
)

__all__ = ["kernel"]

_QUOTES, _NEWLINES, _URLS, _CONTROLS = operations.QUOTES, operations.NEWLINES, operations.URLS, operations.CONTROLS
_BLANKS, _MARKDOWN, _LINES, _QUOTED = operations.BLANKS, operations.MARKDOWN, operations.LINES, operations.QUOTED
_SLICE = operations.SLICE

_AHEAD, _BEGINNING = 4, 256  # rows, bytes


def kernel(texts, offsets, row_count, readable, operation, letters, numbers, words, scratch, made, ends):
    """Change texts. Returns the size of all new texts; -1 if nothing changes.

    Args:
        letters: The bytes to search for or to put before a text, concatenated.
        numbers: For lines and slices, see their functions; for a label, its size.
        words: For lines, see their function.
        made: Room for all texts together (with their labels) and some more.
    """
    written = 0
    is_copied = False  # nothing is copied before the first change
    ends[0] = 0
    for row in range(row_count):
        if operation == _QUOTED and row + _AHEAD < row_count:  # which reads little more than the beginning of a text
            for line in range(0, _BEGINNING, 64):
                prefetch(texts, offsets[row + _AHEAD] + line)
        start = offsets[row]
        size = offsets[row + 1] - start
        text = as_bytes(texts, start)
        if start + size + PADDING > readable:
            text = as_bytes(scratch, 0)
            for i in range(size):
                text[i] = texts[start + i]
            for i in range(size, size + PADDING):
                text[i] = 0
        target = as_bytes(made, written if is_copied else start - offsets[0])
        if operation == _QUOTES:
            changed = unify_quotes(text, size, target)
        elif operation == _NEWLINES:
            changed = normalize_newlines(text, size, target)
        elif operation == _URLS:
            changed = remove_urls(text, size, target)
        elif operation == _CONTROLS:
            changed = remove_controls(text, size, target)
        elif operation == _BLANKS:
            changed = collapse_blanks(text, size, target)
        elif operation == _MARKDOWN:
            changed = remove_markdown(text, size, target)
        elif operation == _LINES:
            changed = remove_lines(text, size, target, letters, numbers, words)
        elif operation == _QUOTED:
            changed = remove_quotes(text, size, target)
        elif operation == _SLICE:
            changed = keep_slice(text, size, target, letters, numbers)
        else:
            changed = with_label(text, size, target, letters, numbers[0])
        if changed < 0:
            if not is_copied:
                continue
            changed = copy(target, 0, text, 0, size)  # now, while it is in the processor's cache
        if not is_copied:
            is_copied = True
            written = copy_exactly(made, 0, texts, offsets[0], start)
            for other in range(row):
                ends[other + 1] = offsets[other + 1] - offsets[0]
        written += changed
        ends[row + 1] = written
    return written if is_copied else -1
