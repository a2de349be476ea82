"""Tables for terminals, pipes and files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def rendered(*parts: RenderableType, width: int = 100, color: bool = False) -> str:
    """Tables and texts of ``rich`` as plain text, without blanks at the ends of lines.

    >>> from rich.text import Text
    >>> rendered(Text("a [b]"), Text("c"))
    'a [b]\\nc\\n'
    """
    from rich.console import Console

    output = io.StringIO()
    console = Console(
        file=output,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())
