"""``tamis models``."""

from __future__ import annotations

import argparse
import dataclasses

from tamis.cli.output import complain, print_json, show, write


def run(arguments: argparse.Namespace) -> int:
    """List the models that stages use, fetch one, bundle one, or check one."""
    if arguments.action == "list":
        return _list(as_json=arguments.json)
    wanted = {"fetch": "NAME", "check": "NAME", "bundle": "NAME FOLDER"}[arguments.action]
    if not arguments.name or (arguments.action == "bundle") != (arguments.folder is not None):
        complain(f"expected tamis models {arguments.action} {wanted}", ["  See tamis models --help"])
        return 2
    from tamis.models.model import Model

    model = Model(
        arguments.name,
        arguments.revision,
        arguments.cache_dir,
        trust_remote_code=arguments.trust_remote_code,
        allow_pickle=arguments.allow_pickle,
    )
    if arguments.action == "bundle":
        write(f"{model.bundle(arguments.folder)}\nOn the other machine: export TAMIS_MODELS_DIR={arguments.folder}")
        return 0
    folder = model.fetch() if arguments.action == "fetch" else model.folder()
    model.check()
    write(folder)
    return 0


def _list(*, as_json: bool) -> int:
    from tamis.models.model import Model
    from tamis.models.registry import KNOWN, KnownModel, bundled_models, is_here

    names = {known.name for known in KNOWN}
    others = [KnownModel(m.name, "", "bundled", "") for m in bundled_models() if m.name not in names]
    rows = [{**dataclasses.asdict(known), "is_here": is_here(Model(known.name))} for known in (*KNOWN, *others)]
    if as_json:
        print_json(rows)
        return 0
    from rich.text import Text

    for row in rows:  # the name has a line of its own, so that it can be copied from a terminal of any width
        size = "" if row["megabytes"] is None else f"{row['megabytes']:,} MB"
        licence = str(row["licence"]) + (" (needs a token)" if row["needs_token"] else "")
        here = "is here" if row["is_here"] else "not here"
        facts = ", ".join(fact for fact in (str(row["purpose"]), size, licence, here) if fact)
        show(Text(str(row["name"])), Text(f"  {facts}", style="dim"))
    show(
        Text(),
        Text(
            "tamis models fetch NAME fetches one; tamis models bundle NAME FOLDER is for a machine without a network."
        ),
    )
    return 0
